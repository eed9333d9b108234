"""A real authorization server: certified OAuth 2.1 and OpenID Connect of `oidc-provider`, as a process of its own."""
