#!/bin/sh
# Stands for docker where there is no daemon: answers as Docker 28 does to what we may ask, and to nothing else. In $DOCKER_STATE: asked, inspect.json, files.tar, containers/.
printf '%s\n' "$*" >>"$DOCKER_STATE/asked"
complain() {
  echo "$1" >&2
  exit 1
}
container="$DOCKER_STATE/containers/"
case "$1 $2" in
  'image inspect')
    case $3 in
      debian:12 | half:1) cat "$DOCKER_STATE/inspect.json" ;;
      gone:1)
        echo '[]'
        complain "Error response from daemon: No such image: $3"
        ;;
      stopped:1)
        echo '[]'
        complain 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?'
        ;;
      closed:1)
        echo '[]'
        complain 'permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.50/images/closed:1/json": dial unix /var/run/docker.sock: connect: permission denied'
        ;;
      nameless:1) echo '[{"Id": "", "Config": null}]' ;;
      *) complain "Error response from daemon: invalid reference format" ;;
    esac
    ;;
  'create --pull')
    [ $# = 7 ] && [ "$3 $4" = 'never --name' ] || complain "docker: 'docker create' requires at least 1 argument"
    [ -e "$container$5" ] && complain "Error response from daemon: Conflict. The container name \"/$5\" is already in use"
    case $6 in
      dddddddd*) : >"$container$5" ;;
      *) complain "Error response from daemon: No such image: $6" ;;
    esac
    echo 5be951395cd2ec7e5b1b31d52394b8489074aa4faf7d630d0d41c997e233e0d6
    ;;
  'export '*)
    [ -e "$container$2" ] || complain "Error response from daemon: No such container: $2"
    if [ -e "$DOCKER_STATE/breaks" ]; then
      head -c 100000 "$DOCKER_STATE/files.tar"
      complain 'unexpected EOF'
    fi
    cat "$DOCKER_STATE/files.tar"
    ;;
  'rm '*)
    rm "$container$2" 2>/dev/null || complain "Error response from daemon: No such container: $2"
    echo "$2"
    ;;
  *) complain "docker: '$1' is not a docker command." ;;
esac
