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
  # Its own devices: through those of the machine the guest would reach its disks and its memory.
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  device() { mknod -m 666 "$root/dev/$1" c "$2" "$3"; }
  device null 1 3
  device zero 1 5
  device full 1 7
  device random 1 8
  device urandom 1 9
  device tty 5 0
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  ln -s /proc/self/fd "$root/dev/fd"
  # Not chroot: whoever is in one may make no user namespace, as PrivateUsers= does.
  cd "$root"
  pivot_root . mnt
  umount -l /mnt
  # As systemd sets it on a machine. The mounts of credentials reach the unit in no other way.
  mount --make-rshared /
  export container=other
  # The first two words, as of the command line of a kernel, let a systemd from 256 on start beside control groups of version 1.
  exec /lib/systemd/systemd systemd.unified_cgroup_hierarchy=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1 --log-target=journal </dev/null >/dev/null 2>&1
' sh "$root"
