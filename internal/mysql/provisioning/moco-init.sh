#!/bin/sh
# Makes the data directory of a new instance, once. It is made under another name and moved when it is complete, so that
# a crash in the middle starts over. Nothing of it is in the binary log, or every instance would be born errant.
# Arguments are further options of mysqld. Only sh, mysqld, mv and rm are needed, and mysql_tzinfo_to_sql if MOCO_ZONEINFO names the
# folder whose time zones the server gets.
# Time zones have names only in a server whose tables are filled.
set -eu
config=${MOCO_CONFIG:-/etc/mysql/my.cnf}
volume=${MOCO_VOLUME:-/var/lib/mysql}
users=${MOCO_USERS:-/moco-users/users.sql}

if [ -d "$volume/data" ]; then
  echo "moco-init: the data directory is there"
  exit 0
fi
rm -rf "$volume/data.new"
initialize() {
  ${MOCO_MYSQLD:-mysqld} --defaults-file="$config" --initialize-insecure --datadir="$volume/data.new" --init-file="$@" \
    --disable-log-bin --read-only=OFF --super-read-only=OFF --default-time-zone=+00:00
}
if [ -z "${MOCO_ZONEINFO:-}" ]; then
  initialize "$users" "$@"
else
  # A word that is no statement fails the initialisation. No password gets to a file.
  {
    echo "USE mysql;"
    ${MOCO_TZINFO:-mysql_tzinfo_to_sql} "$MOCO_ZONEINFO" || echo "spec.initializeTimezoneData needs mysql_tzinfo_to_sql and $MOCO_ZONEINFO in the image;"
    while IFS= read -r statement; do printf '%s\n' "$statement"; done <"$users"
  } | initialize /dev/stdin "$@"
fi
# A server's UUID is made at its first start.
rm -f "$volume/data.new/auto.cnf"
mv "$volume/data.new" "$volume/data"
echo "moco-init: the data directory is made"
