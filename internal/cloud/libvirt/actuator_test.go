// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

func TestCallsAreFew(t *testing.T) {
	daemon := startDaemon(t)
	one, other := daemon.newCluster(), daemon.newCluster()
	ids := [][]string{one.Create(t, 2), other.Create(t, 4)}
	if _, err := daemon.actuator.ObserveAll(t.Context(), one.Target(), []string{one.infraID, other.infraID}); err != nil {
		t.Fatal(err)
	}
	want := map[uint32]int{procAuthList: 1, procConnectOpen: 1, procGetHostname: 1, procListAllDomains: 1, procGetMetadata: 6, procDomainGetState: 6}
	if diff := cmp.Diff(want, daemon.countCalls()); diff != "" {
		t.Errorf("calls of an observation of two clusters of six domains (-want +got):\n%s", diff)
	}
	for i, err := range daemon.actuator.StopAll(t.Context(), one.Target(), ids) {
		if err != nil {
			t.Errorf("stop cluster %d: %v", i, err)
		}
	}
	want = map[uint32]int{procAuthList: 1, procConnectOpen: 1, procDomainLookup: 6, procDomainGetState: 6, procDomainShutdown: 6}
	if diff := cmp.Diff(want, daemon.countCalls()); diff != "" {
		t.Errorf("calls of a stop of two clusters of six domains (-want +got):\n%s", diff)
	}
}

// TestGuestIsShutDownAndNeverPoweredOff uses one guest that reacts to the request and one that does not.
func TestGuestIsShutDownAndNeverPoweredOff(t *testing.T) {
	daemon := startDaemon(t)
	c := daemon.newCluster()
	ids := c.Create(t, 2)
	good, deaf := ids[0], ids[1]
	daemon.change(func() { daemon.find(deaf).isDeaf = true })
	stop := func() error { return daemon.actuator.Stop(t.Context(), c.Target(), ids) }
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	c.expectStates(t, map[string]actuator.MachineState{good: actuator.Stopping, deaf: actuator.Stopping})
	if err := daemon.actuator.Start(t.Context(), c.Target(), ids); actuator.ClassOf(err) != actuator.WrongState {
		t.Errorf("a start while guests turn off: %v, want class %q", err, actuator.WrongState)
	}
	c.Settle(t)
	c.expectStates(t, map[string]actuator.MachineState{good: actuator.Stopped, deaf: actuator.Stopping})
	daemon.clock.SetTime(daemon.clock.Now().Add(shutdownGrace))
	c.expectStates(t, map[string]actuator.MachineState{good: actuator.Stopped, deaf: actuator.Running})
	err := stop()
	known, _ := errors.AsType[*actuator.Error](err)
	if known == nil || known.Class != actuator.Other || !cmp.Equal(known.RefusedIDs, []string{deaf}) || !strings.Contains(known.Message, "asked to turn off minutes ago") {
		t.Errorf("a stop after the grace period: %v, want an error that names %s", err, deaf)
	}
	if calls := daemon.countCalls(); calls[procDomainDestroy] > 0 {
		t.Errorf("%d guests lost their power, want none", calls[procDomainDestroy])
	}
	// The domain has received no shutdown request since it was started again.
	daemon.change(func() { daemon.find(deaf).turnOff() })
	if err := daemon.actuator.Start(t.Context(), c.Target(), ids); err != nil {
		t.Error(err)
	}
	c.expectStates(t, map[string]actuator.MachineState{good: actuator.Running, deaf: actuator.Running})
}

// The owner of a daemon chooses the UUIDs of its domains.
func TestADomainOfAnotherDaemonIsAnotherDomain(t *testing.T) {
	daemon, hostile := startDaemon(t), startDaemon(t)
	hostile.actuator = daemon.actuator
	mine, copied := daemon.newCluster(), hostile.newCluster()
	ids := mine.Create(t, 1)
	if diff := cmp.Diff(ids, copied.Create(t, 1)); diff != "" {
		t.Fatalf("expected the same UUIDs (-want +got):\n%s", diff)
	}
	hostile.change(func() { hostile.find(ids[0]).isDeaf = true })
	if err := daemon.actuator.Stop(t.Context(), copied.Target(), ids); err != nil {
		t.Fatal(err)
	}
	mine.expectStates(t, map[string]actuator.MachineState{ids[0]: actuator.Running})
	if err := daemon.actuator.Start(t.Context(), mine.Target(), ids); err != nil {
		t.Errorf("start a running domain: %v", err)
	}
}

// A cluster with machines that also belong to another cluster is not stopped. An unlisted daemon must therefore not
// be able to claim another owner's machines.
func TestUnlistedDaemonsCannotClaimAnotherHost(t *testing.T) {
	const host = "host-1.example.com"
	listed, byAddress := connection{errorExplainer: errorExplainer{"qemu:///system", true}, place: "a"}, connection{errorExplainer: errorExplainer{"qemu:///system", true}, place: "b"}
	unlisted, other := connection{errorExplainer: errorExplainer{driver: "qemu:///system"}, place: "c"}, connection{errorExplainer: errorExplainer{driver: "qemu:///system"}, place: "d"}
	if listed.accountName(host) != byAddress.accountName(host) {
		t.Errorf("found two accounts for %s by two addresses, want one", host)
	}
	for _, c := range []*connection{&listed, &other} {
		if found := unlisted.accountName(host); found == c.accountName(host) {
			t.Errorf("found the account %q at %s too, want an account other than that at %s", found, unlisted.place, c.place)
		}
	}
}

func TestDomainsInEveryState(t *testing.T) {
	for name, row := range map[string]struct {
		from               domainState
		seen               actuator.MachineState
		holds              bool
		afterStop, toStart actuator.MachineState
		// stopClass and startClass are the classes of refusals.
		stopClass, startClass actuator.ErrorClass
	}{
		"running domain can be shut down":                                                  {domainState{stateRunning, 1}, actuator.Running, false, actuator.Stopped, actuator.Running, "", ""},
		"blocked domain is Running and accepts both orders":                                {domainState{stateBlocked, 0}, actuator.Running, false, actuator.Running, actuator.Running, "", ""},
		"domain in an unknown state is Running and accepts both orders":                    {domainState{99, 0}, actuator.Running, false, actuator.Running, actuator.Running, "", ""},
		"domain paused by a user is Running and refuses orders permanently":                {domainState{statePaused, 1}, actuator.Running, false, actuator.Running, actuator.Running, actuator.Other, actuator.Other},
		"domain paused after an I/O error is Running and refuses orders permanently":       {domainState{statePaused, 5}, actuator.Running, false, actuator.Running, actuator.Running, actuator.Other, actuator.Other},
		"domain paused after a failed migration is Running and refuses orders permanently": {domainState{statePaused, 13}, actuator.Running, false, actuator.Running, actuator.Running, actuator.Other, actuator.Other},
		"domain paused during migration is Running and refuses orders temporarily":         {domainState{statePaused, 2}, actuator.Running, false, actuator.Running, actuator.Running, actuator.WrongState, actuator.WrongState},
		"domain paused for a snapshot is Running and refuses orders temporarily":           {domainState{statePaused, 9}, actuator.Running, false, actuator.Running, actuator.Running, actuator.WrongState, actuator.WrongState},
		"domain that is starting refuses a stop temporarily":                               {domainState{statePaused, pausedStartingUp}, actuator.Starting, false, actuator.Starting, actuator.Starting, actuator.WrongState, ""},
		"domain paused during its shutdown is Stopping and refuses a start temporarily":    {domainState{statePaused, pausedShuttingDown}, actuator.Stopping, false, actuator.Stopping, actuator.Stopping, "", actuator.WrongState},
		"domain that is shutting down refuses a start temporarily":                         {domainState{stateShuttingDown, 1}, actuator.Stopping, false, actuator.Stopping, actuator.Stopping, "", actuator.WrongState},
		"domain that is shut off can be started":                                           {domainState{stateShutOff, 1}, actuator.Stopped, false, actuator.Stopped, actuator.Running, "", ""},
		"crashed domain is Stopped, holds capacity and can be started":                     {domainState{stateCrashed, 1}, actuator.Stopped, true, actuator.Stopped, actuator.Running, "", ""},
		"domain suspended by the guest is Stopped, holds capacity and can be started":      {domainState{statePMSuspended, 0}, actuator.Stopped, true, actuator.Stopped, actuator.Running, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for operation, want := range map[string]struct {
				state actuator.MachineState
				class actuator.ErrorClass
			}{stop: {row.afterStop, row.stopClass}, start: {row.toStart, row.startClass}} {
				daemon := startDaemon(t)
				c := daemon.newCluster()
				ids := c.Create(t, 1)
				daemon.change(func() {
					daemon.find(ids[0]).domainState = row.from
					if row.from.state == stateShutOff {
						daemon.find(ids[0]).turnOff()
					}
				})
				machines, err := daemon.actuator.Observe(t.Context(), c.Target())
				if err != nil || len(machines) != 1 || machines[0].State != row.seen || machines[0].HoldsCapacity != row.holds {
					t.Fatalf("found %+v and error %v, want state %s, holding capacity: %t", machines, err, row.seen, row.holds)
				}
				do := map[string]func(context.Context, actuator.Target, []string) error{stop: daemon.actuator.Stop, start: daemon.actuator.Start}[operation]
				err = do(t.Context(), c.Target(), ids)
				if (err == nil) != (want.class == "") || err != nil && actuator.ClassOf(err) != want.class {
					t.Errorf("%s: error %v, want class %q", operation, err, want.class)
				}
				c.Settle(t)
				daemon.clock.SetTime(daemon.clock.Now().Add(shutdownGrace))
				c.expectStates(t, map[string]actuator.MachineState{ids[0]: want.state})
			}
		})
	}
}

func TestOwnersOfDomains(t *testing.T) {
	clusters := []string{"sleepy", "sleepy-a", "other"}
	for name, row := range map[string]struct {
		domain, claim string
		isClaimed     bool
		want          string
	}{
		"domain with the name of a cluster's machine belongs to the cluster":                     {"sleepy-worker-0", "", false, "sleepy"},
		"domain name that begins with two infraIDs belongs to the cluster with the longer one":   {"sleepy-a-worker-0", "", false, "sleepy-a"},
		"domain name that begins with the infraID without a dash belongs to no cluster":          {"sleepy2-worker-0", "", false, ""},
		"domain name that equals the infraID belongs to no cluster":                              {"sleepy", "", false, ""},
		"domain of a cluster with a longer infraID belongs to no polled cluster":                 {"sleepy-b-worker-0", "", false, ""},
		"domain name without a role belongs to no cluster":                                       {"sleepy-db", "", false, ""},
		"domain with metadata of a cluster belongs to this cluster even without a matching name": {"db", "other", true, "other"},
		"domain with metadata of another cluster belongs to that cluster despite its name":       {"sleepy-worker-0", "other", true, "other"},
		"domain with metadata of an unwanted cluster belongs to no cluster despite its name":     {"sleepy-worker-0", "foreign", true, ""},
		"domain with metadata without a cluster belongs to no cluster despite its name":          {"sleepy-worker-0", "", true, ""},
	} {
		if got := findOwner(row.domain, row.claim, row.isClaimed, clusters); got != row.want {
			t.Errorf("%s: found %q, want %q", name, got, row.want)
		}
	}
}

func TestTransientDomainsKeepTheirClusterRunning(t *testing.T) {
	daemon := startDaemon(t)
	c := daemon.newCluster()
	ids := c.Create(t, 23)
	daemon.change(func() { daemon.find(ids[1]).isTransient = true })
	err := daemon.actuator.Stop(t.Context(), c.Target(), ids)
	if actuator.ClassOf(err) != actuator.Other || !strings.Contains(err.Error(), "virsh define") || !strings.Contains(err.Error(), ids[1]) || strings.Contains(err.Error(), ids[0]) {
		t.Errorf("found %v, want an error that names %s and a remedy", err, ids[1])
	}
	daemon.change(func() {
		for _, id := range ids[1:] {
			daemon.find(id).isTransient = true
		}
	})
	if err := daemon.actuator.Stop(t.Context(), c.Target(), ids); err == nil || !strings.HasSuffix(err.Error(), " and 2 more") {
		t.Errorf("found %v, want an error that names 20 of the 22 transient domains and counts the rest", err)
	}
	running := map[string]actuator.MachineState{}
	for _, id := range ids {
		running[id] = actuator.Running
	}
	c.expectStates(t, running)
}

// TestHostileAnswersAreCut uses frames of a server that is not a libvirt daemon.
func TestHostileAnswersAreCut(t *testing.T) {
	words := func(all ...uint32) []byte {
		var w xdrWriter
		for _, word := range all {
			w.writeUint(word)
		}
		return w.content
	}
	listing := func(content ...uint32) func(procedure, serial uint32) []byte {
		return func(procedure, serial uint32) []byte {
			if procedure != procListAllDomains {
				return nil
			}
			return buildFrame(procedure, serial, statusOK, words(content...))
		}
	}
	always := func(frame []byte) func(procedure, serial uint32) []byte {
		return func(uint32, uint32) []byte { return frame }
	}
	for name, row := range map[string]struct {
		interfere func(procedure, serial uint32) []byte
		want      string
	}{
		"frame shorter than its header is refused":    {always(words(3, 0, 0, 0, 0, 0, 0)), "not a valid libvirt response"},
		"frame larger than the maximum is refused":    {always(words(1<<31, 0, 0, 0, 0, 0, 0)), "larger than allowed"},
		"HTTP response instead of a frame is refused": {always([]byte("HTTP/1.1 400 Bad Request\r\n\r\n12345678")), "larger than allowed"},
		"too many authentication methods are refused": {func(procedure, serial uint32) []byte { return buildFrame(procedure, serial, statusOK, words(1<<31)) }, "not a valid libvirt response"},
		"undefined status of a response is refused":   {func(procedure, serial uint32) []byte { return buildFrame(procedure, serial, 7, nil) }, "not a valid libvirt response"},
		"error without a message is refused":          {func(procedure, serial uint32) []byte { return buildFrame(procedure, serial, statusError, nil) }, "not a valid libvirt response"},
		"list of too many domains is refused":         {listing(1 << 31), "more domains than allowed"},
		"list shorter than its length is refused":     {listing(9), "not a valid libvirt response"},
		"name longer than its frame is refused":       {listing(1, 1<<31), "not a valid libvirt response"},
		"name above the maximum length is refused":    {listing(1, maxNameBytes+1), "not a valid libvirt response"},
		"name without its padding is refused":         {listing(1, 1), "not a valid libvirt response"},
	} {
		t.Run(name, func(t *testing.T) {
			daemon := startDaemon(t)
			daemon.interfere = row.interfere
			found, err := daemon.actuator.Observe(t.Context(), daemon.newCluster().Target())
			if actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), row.want) || len(found) > 0 {
				t.Errorf("found %v and %v, want an error of class %q with %q", found, err, actuator.Unreachable, row.want)
			}
		})
	}
}

// TestAConnectionHasABudget uses a server that answers one call endlessly.
func TestAConnectionHasABudget(t *testing.T) {
	daemon := startDaemon(t)
	daemon.interfere = func(procedure, _ uint32) []byte {
		frame := buildFrame(procedure, 99, statusOK, make([]byte, 1<<20)) // No client has made that call.
		return bytes.Repeat(frame, maxAnswerBytes/len(frame)+1)
	}
	_, err := daemon.actuator.Observe(t.Context(), daemon.newCluster().Target())
	if actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), "larger than allowed") {
		t.Errorf("found %v, want an error about an answer that is larger than allowed", err)
	}
}

// TestSilentDaemonIsUnreachable uses calls that are never answered.
func TestSilentDaemonIsUnreachable(t *testing.T) {
	daemon := startDaemon(t)
	c := daemon.newCluster()
	c.Create(t, 3)
	daemon.interfere = func(procedure, _ uint32) []byte {
		if procedure == procDomainGetState {
			return buildFrame(procedure, 0, statusOK, nil) // The frame answers a call that was not made.
		}
		return nil
	}
	impatient := New(Options{Endpoints: daemon.actuator.options.Endpoints, CallTimeout: time.Second})
	found, err := impatient.Observe(t.Context(), c.Target())
	if actuator.ClassOf(err) != actuator.Unreachable || !strings.Contains(err.Error(), "does not respond") || len(found) > 0 {
		t.Errorf("found %v and %v, want class %q", found, err, actuator.Unreachable)
	}
}

// TestServersOfSecrets checks which servers a Secret may refer to, and which servers' messages are shown.
func TestServersOfSecrets(t *testing.T) {
	daemon := startDaemon(t)
	daemon.inject(t, fault{procedure: procListAllDomains, code: 1, message: secretWords})
	for name, row := range map[string]struct {
		uri    string
		listed []string
		class  actuator.ErrorClass
		says   string
	}{
		"tcp to a listed server shows the daemon's message":    {daemon.uri(), []string{"127.0.0.0/8"}, actuator.Other, "hush-hush of the host <time> <id>"},
		"tcp is refused without a list of servers":             {daemon.uri(), nil, actuator.Other, "tcp has no authentication"},
		"tcp to an unlisted server is refused":                 {daemon.uri(), []string{"10.0.0.0/8"}, actuator.Other, "expected a server that --allow-endpoints lists"},
		"metadata service is refused":                          {"qemu+tcp://169.254.169.254/system", nil, actuator.Other, httpguard.ErrAddressDenied.Error()},
		"local socket is refused if the manager has no socket": {"qemu:///system", nil, actuator.Other, "--libvirt-socket"},
	} {
		t.Run(name, func(t *testing.T) {
			listed, err := httpguard.ParseEndpoints(row.listed)
			if err != nil {
				t.Fatal(err)
			}
			_, err = New(Options{Endpoints: listed}).Observe(t.Context(), actuator.Target{InfraID: "a", Credentials: map[string][]byte{uriKey: []byte(row.uri)}})
			if actuator.ClassOf(err) != row.class || !strings.Contains(err.Error(), row.says) {
				t.Errorf("found %v, want class %q and %q", err, row.class, row.says)
			}
		})
	}
}
