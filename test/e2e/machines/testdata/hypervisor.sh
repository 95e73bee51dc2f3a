#!/bin/sh
# Runs libvirtd with its own libraries and folders: in its own namespaces, so that nothing is left when this script ends. TREE and WORK must be set.
set -eu
mount --make-rprivate /
mkdir -p "$TREE/dev" "$TREE/proc" "$TREE/sys" "$TREE/run" "$TREE/tmp" "$TREE/etc/libvirt" "$TREE/work" "$TREE/var/lib/libvirt" "$TREE/var/cache/libvirt" "$TREE/var/log/libvirt"
mount --rbind /dev "$TREE/dev"
mount -t proc proc "$TREE/proc"
mount -t sysfs -o ro sysfs "$TREE/sys"
for folder in run tmp etc/libvirt var/lib/libvirt var/cache/libvirt var/log/libvirt; do mount -t tmpfs tmpfs "$TREE/$folder"; done
mount --bind "$WORK" "$TREE/work"
printf 'root:x:0:0::/:/bin/sh\nlibvirt-qemu:x:64055:64055::/:/bin/false\n' > "$TREE/etc/passwd"
printf 'root:x:0:\nkvm:x:1:\nlibvirt-qemu:x:64055:\n' > "$TREE/etc/group"
printf 'user = "root"\ngroup = "root"\nsecurity_driver = "none"\ncgroup_controllers = []\nnamespaces = []\nremember_owner = 0\nstdio_handler = "file"\n' > "$TREE/etc/libvirt/qemu.conf"
printf 'auth_unix_rw = "none"\nunix_sock_dir = "/work"\nlog_outputs = "3:stderr"\nhost_uuid = "7f3c8a52-6a0b-4a3a-9d5e-0c6f1f6b2a12"\n' > "$WORK/libvirtd.conf"
chroot "$TREE" /usr/sbin/libvirtd -f /work/libvirtd.conf &
wait # Somebody has to, for the guests' processes: libvirtd starts them as daemons.
