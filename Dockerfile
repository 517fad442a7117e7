# Image of waymaker-server with waymaker-ctl, and nothing else: docker build --tag waymaker .
# packages/check runs these steps without Docker. Keep them as simple as they are.
FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends musl-tools \
    && rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /source
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/source/target \
    cargo build --release --locked --target "$(uname -m)-unknown-linux-musl" -p waymaker-server -p waymaker-ctl \
    && packages/image "target/$(uname -m)-unknown-linux-musl/release" /image

FROM scratch
COPY --from=build /image /
USER waymaker
# The server keeps its log here. Mount a volume, so that fences and holds survive the container.
VOLUME /var/lib/waymaker
ENV WAYMAKER_DATA_DIR=/var/lib/waymaker/data WAYMAKER_UNIX=/run/waymaker/waymaker.sock
EXPOSE 7420 7421 7422
# Unhealthy means: new claims are not served. If clients need a token, set WAYMAKER_TOKEN_FILE, also for this check.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s \
    CMD ["waymaker-ctl", "--server", "waymaker+unix:///run/waymaker/waymaker.sock", "server", "status", "--connect-timeout", "5s"]
STOPSIGNAL SIGTERM
# Listens on loopback inside the container. To reach it from outside, set the listen addresses with TLS and credentials.
ENTRYPOINT ["waymaker-server"]
