// SPDX-License-Identifier: Apache-2.0

package mysqld

import (
	"testing"
)

func TestServersComeBack(t *testing.T) {
	b := NewInstallation(t, "create user 'moco-admin'@'%' identified by 'a';\ngrant all on *.* to 'moco-admin'@'%' with grant option;\n")
	first, second := b.StartServer(t), b.StartServer(t)
	if first.Address == second.Address {
		t.Fatalf("two servers on %s", first.Address)
	}
	first.KillAtOnce(t)
	first.StartAndWait(t)
	second.Stop(t)
	second.StartAndWait(t)
	if first.PID() == second.PID() {
		t.Fatal("expected two processes")
	}
}
