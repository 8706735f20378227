# docker build -t x0x .
# docker run --init -d --name x0x -p 5483:5483 -v x0x:/var/lib/x0x -v /etc/x0x:/etc/x0x:ro x0x
#   /etc/x0x holds config.toml (deploy/config.toml is an example; an empty one will do) and exec-acl.toml.
# docker exec x0x x0x --data-dir /var/lib/x0x id

FROM node:24-slim AS build
WORKDIR /src
COPY package.json package-lock.json .npmrc ./
RUN npm ci --no-audit --no-fund
COPY . .
RUN npm run build

FROM node:24-slim
RUN groupadd --system x0x \
  && useradd --system --gid x0x --home-dir /var/lib/x0x --shell /usr/sbin/nologin x0x \
  && install -d -o x0x -g x0x -m 0700 /var/lib/x0x /var/log/x0x
COPY --from=build /src/package.json /src/LICENSE /opt/x0x/
COPY --from=build /src/deploy/bin /opt/x0x/deploy/bin
COPY --from=build /src/deploy/runtime.mjs /opt/x0x/deploy/
COPY --from=build /src/dist /opt/x0x/dist
RUN ln -s /opt/x0x/deploy/bin/x0x.cjs /usr/local/bin/x0x \
  && ln -s /opt/x0x/deploy/bin/x0xd.mjs /usr/local/bin/x0xd \
  && ln -s /opt/x0x/deploy/bin/rexd.mjs /usr/local/bin/rexd \
  && install -d -m 0755 /etc/x0x && install -m 0644 /dev/null /etc/x0x/config.toml
USER x0x
VOLUME ["/var/lib/x0x", "/var/log/x0x"]
EXPOSE 5483
HEALTHCHECK --start-period=10s CMD ["x0x", "--data-dir", "/var/lib/x0x", "peers"]
ENTRYPOINT ["x0xd", "--data-dir", "/var/lib/x0x", "--config", "/etc/x0x/config.toml"]
