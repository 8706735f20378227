#!/bin/sh
# Boots the Debian in directory $1 with its systemd as PID 1, in namespaces of its own. As root; util-linux.
# Runs until that systemd ends; whoever kills our child ends everything in it.
set -eu
root=$1
exec unshare --pid --fork --kill-child --mount --uts --ipc --net --cgroup sh -eu -c '
  root=$1
  mount --make-rprivate /
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
  mkdir "$root/sys/fs/cgroup/unified" "$root/sys/fs/cgroup/systemd"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup/unified"
  mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
  mount -t tmpfs tmpfs "$root/run"
  mount -t tmpfs tmpfs "$root/tmp"
  mount --rbind /dev "$root/dev"
  # Not chroot: whoever is in one may make no user namespace, as PrivateUsers= does.
  cd "$root"
  pivot_root . mnt
  umount -l /mnt
  export container=other
  exec /lib/systemd/systemd --log-target=journal </dev/null >/dev/null 2>&1
' sh "$root"
