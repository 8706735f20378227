# docker build -t x0x .
# docker run -d --name x0x -p 5483:5483 -v x0x:/var/lib/x0x -v x0x-log:/var/log/x0x -v /etc/x0x:/etc/x0x:ro x0x
#   /etc/x0x holds config.toml (deploy/config.toml is an example; an empty one will do) and exec-acl.toml.
# docker exec x0x x0x id
# Three of them: deploy/compose/compose.yaml. One on each node of a cluster: deploy/kubernetes.yaml. See docs/install.md.

FROM node:24-slim AS build
WORKDIR /src
COPY package.json package-lock.json .npmrc ./
RUN npm ci --no-audit --no-fund
COPY . .
RUN npm run build

FROM node:24-slim
# tini is process 1. It reaps what commands leave behind, and passes signals on.
RUN apt-get update && apt-get install -y --no-install-recommends tini && rm -rf /var/lib/apt/lists/*
# A number, so that an engine can see that the user is not root. The volumes belong to this user.
RUN groupadd --gid 5483 x0x \
  && useradd --uid 5483 --gid x0x --no-create-home --home-dir /var/lib/x0x --shell /usr/sbin/nologin x0x \
  && install -d -o x0x -g x0x -m 0700 /var/lib/x0x /var/log/x0x
COPY --from=build /src/package.json /src/LICENSE /opt/x0x/
COPY --from=build /src/deploy/bin /opt/x0x/deploy/bin
COPY --from=build /src/deploy/runtime.mjs /opt/x0x/deploy/
COPY --from=build /src/node_modules/@lydell /opt/x0x/node_modules/@lydell
COPY --from=build /src/node_modules/@koromix /opt/x0x/node_modules/@koromix
COPY --from=build /src/dist /opt/x0x/dist
# An empty configuration, until another one is mounted in its place. Without an ACL, all commands are denied.
RUN for name in x0x.cjs x0xd.mjs rexd.mjs rexec.cjs; do ln -s "/opt/x0x/deploy/bin/$name" "/usr/local/bin/${name%.*}" || exit 1; done \
  && install -d -m 0755 /etc/x0x && install -m 0644 /dev/null /etc/x0x/config.toml
# The command line in the container uses the daemon in the container.
ENV X0X_DATA_DIR=/var/lib/x0x
USER 5483:5483
VOLUME ["/var/lib/x0x", "/var/log/x0x"]
EXPOSE 5483
HEALTHCHECK --start-period=10s CMD ["x0x", "peers"]
# -s: tini reaps too if the engine or the pod has a process 1 of its own.
ENTRYPOINT ["tini", "-s", "--", "x0xd", "--config", "/etc/x0x/config.toml"]
