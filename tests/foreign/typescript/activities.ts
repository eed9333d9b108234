export async function translated(text: string, language: string): Promise<string> {
  return `[${language}] ${text}`;
}
