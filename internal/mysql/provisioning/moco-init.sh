#!/bin/sh
# Makes the data directory of a new instance, once. It is made under another name and moved when it is complete, so that
# a crash in the middle starts over. Nothing of it is in the binary log, or every instance would be born errant.
# Arguments are further options of mysqld. Only sh, mysqld, mv and rm are needed.
set -eu
config=${MOCO_CONFIG:-/etc/mysql/my.cnf}
volume=${MOCO_VOLUME:-/var/lib/mysql}
users=${MOCO_USERS:-/moco-users/users.sql}

if [ -d "$volume/data" ]; then
  echo "moco-init: the data directory is there"
  exit 0
fi
rm -rf "$volume/data.new"
${MOCO_MYSQLD:-mysqld} --defaults-file="$config" --initialize-insecure --datadir="$volume/data.new" --init-file="$users" \
  --disable-log-bin --read-only=OFF --super-read-only=OFF "$@"
# A server's UUID is made at its first start.
rm -f "$volume/data.new/auto.cnf"
mv "$volume/data.new" "$volume/data"
echo "moco-init: the data directory is made"
