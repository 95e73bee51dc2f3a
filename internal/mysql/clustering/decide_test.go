// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// well is a healthy cluster of three whose primary is instance 0, changed.
func well(changes ...func(*Observed)) Observed {
	o := Observed{Now: worldTime(), Replicas: 3, Memory: Memory{Instances: make([]Past, 3)}}
	for i := range 3 {
		o.Instances = append(o.Instances, Instance{
			Host: host(i), Reachable: true, UUID: uuid(i), Family: Family{8, 4}, ReadOnly: true, SuperReadOnly: true,
			Pod: Pod{Exists: true, Ready: true, Role: Replica}, Executed: set("0:1-9"), SemiSync: SemiSync{Replica: true},
			Channel: Channel{Present: true, SourceHost: host(0), IO: Running, SQL: Running},
		})
	}
	p := &o.Instances[0]
	p.ReadOnly, p.SuperReadOnly, p.Pod.Role, p.Channel = false, false, Primary, Channel{}
	p.SemiSync = SemiSync{Source: true, WaitFor: 1, Timeout: foreverTimeout}
	p.Connected = []string{uuid(1), uuid(2)}
	for _, change := range changes {
		change(&o)
	}
	return o
}

// set reads sets in which a server is only its index.
func set(text string) gtid.Set {
	var all gtid.Set
	for part := range splitSeq(text) {
		s, err := gtid.Parse(part)
		if err != nil {
			panic(err)
		}
		all = all.Union(s)
	}
	return all
}

func at(i int, changes ...func(*Instance)) func(*Observed) {
	return func(o *Observed) {
		for _, change := range changes {
			change(&o.Instances[i])
		}
	}
}

func gone(s *Instance) {
	*s = Instance{Host: s.Host, Pod: Pod{Exists: true, Role: s.Pod.Role}, KnownErrant: s.KnownErrant}
}

func silent(s *Instance)                       { gone(s); s.Pod.Ready = true }
func refused(s *Instance)                      { silent(s); s.Refused = true }
func closed(s *Instance)                       { s.ReadOnly, s.SuperReadOnly = true, true }
func opened(s *Instance)                       { s.ReadOnly, s.SuperReadOnly = false, false }
func toStepDown(s *Instance)                   { s.Pod.Demote = true }
func terminating(s *Instance)                  { s.Pod.Terminating = true }
func leftAlone(s *Instance)                    { s.Stopped = true }
func behindBy(d time.Duration) func(*Instance) { return func(s *Instance) { s.Channel.Lag = d } }

// maxDelay is the default of the kind.
func maxDelay(o *Observed) { o.MaxDelay = time.Minute }

func ioFailed(errno int) func(*Instance) {
	return func(s *Instance) { s.Channel.IOErrno = errno }
}
func fencedOff(s *Instance)   { s.Channel.IO = Stopped }
func sqlStopped(s *Instance)  { s.Channel.SQL = Stopped }
func sqlFailed(s *Instance)   { s.Channel.SQL, s.Channel.SQLErrno = Stopped, 1062 }
func unconnected(s *Instance) { s.Channel = Channel{} }
func restarted(s *Instance) {
	closed(s)
	s.SemiSync = SemiSync{}
	s.Channel.IO, s.Channel.SQL = Stopped, Stopped
}

func emptied(s *Instance)             { s.Executed, s.Purged, s.Channel = gtid.Set{}, gtid.Set{}, Channel{} }
func fellBehind(s *Instance)          { s.Channel.Lag = time.Minute }
func unlabelled(s *Instance)          { s.Pod.Role = NoRole }
func has(text string) func(*Instance) { return func(s *Instance) { s.Executed = set(text) } }

// behind has received something that it has not applied.
func behind(s *Instance) { s.Channel.Retrieved = set("0:10") }

func hangs(since time.Duration) func(*Instance) {
	return func(s *Instance) { s.Pending, s.PendingFor = true, since }
}

func waiting1(s *Instance) { s.SemiSync.Waiting = 1 }

func stopAsked(o *Observed) { o.StopAsked = true; o.Memory.StopAskedSince = o.Now }

func follow(source int) func(*Instance) {
	return func(s *Instance) { s.Channel.SourceHost = host(source) }
}

func gaveUp(o *Observed) { o.Memory.GaveUpAt = o.Now.Add(-time.Second) }

func tiredOf(i int) func(*Observed) {
	return func(o *Observed) { o.Memory.Instances[i].FailedAt = o.Now.Add(-time.Second) }
}

// promoted is the moment after instance 1 became the primary in the status.
func promoted(o *Observed) {
	o.Primary = 1
	closed(&o.Instances[0])
}

// started is the moment after a switch-over to instance 1, ready to be written to.
func started(o *Observed) {
	promoted(o)
	o.Instances[0].SemiSync = SemiSync{Replica: true}
	o.Instances[0].Channel = Channel{Present: true, SourceHost: host(1), IO: Running, SQL: Running}
	o.Instances[0].Pod.Role = NoRole
	p := &o.Instances[1]
	p.Channel, p.SemiSync = Channel{}, SemiSync{Source: true, WaitFor: 1, Timeout: foreverTimeout}
	o.Instances[2].Channel.SourceHost = host(1)
}

func brandNew(o *Observed) {
	o.Primary = None
	for i := range o.Instances {
		s := &o.Instances[i]
		emptied(s)
		closed(s)
		s.SemiSync, s.Pod.Role = SemiSync{}, NoRole
	}
}

func TestDecide(t *testing.T) {
	type decision struct {
		Rule  string
		Do    Action
		State State
	}
	nothing := Nothing{}
	settledAs := func(s State) decision { return decision{"settled", nothing, s} }
	used := map[string]bool{}
	for name, row := range map[string]struct {
		in   Observed
		want decision
	}{
		"a healthy cluster is left alone":                   {well(), settledAs(StateHealthy)},
		"one look that the primary misses is not a failure": {well(at(0, silent)), decision{"the primary does not answer", nothing, StateIncomplete}},
		"a primary that refuses connections is one":         {well(at(0, refused)), decision{"fence for a failover", StopIO{[]int{1, 2}}, StateFailed}},
		"so is one whose pod is not ready":                  {well(at(0, gone)), decision{"fence for a failover", StopIO{[]int{1, 2}}, StateFailed}},
		"so is one that misses two looks in half a second":  {well(at(0, silent), missed(2, downAfter)), decision{"fence for a failover", StopIO{[]int{1, 2}}, StateFailed}},
		"two looks in a moment are not enough":              {well(at(0, silent), missed(2, downAfter-1)), decision{"the primary does not answer", nothing, StateIncomplete}},
		"only who is not fenced is fenced":                  {well(at(0, gone), at(1, fencedOff)), decision{"fence for a failover", StopIO{[]int{2}}, StateFailed}},
		"a statement of ours that hangs is no fence":        {well(at(0, gone), at(1, fencedOff, hangs(0)), at(2, fencedOff)), decision{"fence for a failover", StopIO{[]int{1}}, StateFailed}},
		"one replica alone knows too little":                {well(at(0, gone), at(2, gone)), decision{"failed", nothing, StateLost}},
		"an errant replica is no witness":                   {well(at(0, gone), at(2, fencedOff, unlabelled, func(s *Instance) { s.KnownErrant = true })), decision{"failed", nothing, StateLost}},
		"an empty replica is no witness":                    {well(at(0, gone), at(2, emptied)), decision{"failed", nothing, StateLost}},
		"an empty cluster does not fail over":               {well(at(0, gone), at(1, emptied), at(2, emptied)), decision{"failed", nothing, StateLost}},
		"of replicas that are equal the first is promoted":  {well(at(0, gone), at(1, fencedOff), at(2, fencedOff)), decision{"fail over", PromoteInStatus{1, 0}, StateFailed}},
		"of replicas that differ the one with more":         {well(at(0, gone), at(1, fencedOff), at(2, fencedOff, has("0:1-10"))), decision{"fail over", PromoteInStatus{2, 0}, StateFailed}},
		"what is received counts, and is awaited":           {well(at(0, gone), at(1, fencedOff), at(2, fencedOff, behind)), decision{"failed", nothing, StateFailed}},
		"who has applied it goes first":                     {well(at(0, gone), at(1, fencedOff, behind), at(2, fencedOff, has("0:1-10"))), decision{"fail over", PromoteInStatus{2, 0}, StateFailed}},
		"who is about to go goes last":                      {well(at(0, gone), at(1, fencedOff, terminating), at(2, fencedOff)), decision{"fail over", PromoteInStatus{2, 0}, StateFailed}},
		"the oldest family goes first":                      {well(at(0, gone), at(1, fencedOff, func(s *Instance) { s.Family = Family{9, 7} }), at(2, fencedOff)), decision{"fail over", PromoteInStatus{2, 0}, StateFailed}},
		"a top runner that does not apply is started":       {well(at(0, gone), at(1, fencedOff, behind, sqlStopped), at(2, fencedOff)), decision{"the top runner does not apply", RestartSQL{1}, StateFailed}},
		"not after an error":                                {well(at(0, gone), at(1, fencedOff, behind, sqlFailed), at(2, fencedOff)), decision{"failed", nothing, StateFailed}},
		"of replicas with different transactions none":      {well(at(0, gone), at(1, fencedOff, has("0:1-9,1:1")), at(2, fencedOff, has("0:1-10"))), decision{"failed", nothing, StateFailed}},
		"a fence that is in vain is taken back":             {well(at(0, gone), at(1, fencedOff), at(2, gone)), decision{"take a fence back", StartIO{1}, StateLost}},
		"also if the connection was lost before":            {well(at(0, gone), at(1, fencedOff, ioFailed(2003)), at(2, gone)), decision{"take a fence back", StartIO{1}, StateLost}},
		"not where the source refused":                      {well(at(0, gone), at(1, fencedOff, ioFailed(1236)), at(2, gone)), decision{"failed", nothing, StateLost}},
		"a primary that lost its volume has failed":         {well(at(0, restarted, emptied)), decision{"fence for a failover", StopIO{[]int{1, 2}}, StateFailed}},
		"so has one that lost its last transactions":        {well(at(0, restarted, unconnected, has("0:1-8"))), decision{"fence for a failover", StopIO{[]int{1, 2}}, StateFailed}},
		"servers that all have just started wait for it":    {well(at(0, gone), at(1, restarted), at(2, restarted), missed(9, time.Second)), decision{"the primary does not answer", nothing, StateIncomplete}},
		"but not for long":                                  {well(at(0, gone), at(1, restarted), at(2, restarted), missed(9, startPatience)), decision{"fail over", PromoteInStatus{1, 0}, StateFailed}},
		"nor for a pod that is going":                       {well(at(0, gone, terminating), at(1, restarted), at(2, restarted)), decision{"fail over", PromoteInStatus{1, 0}, StateFailed}},
		"a primary that is left alone is not replaced":      {well(at(0, gone, leftAlone)), decision{"the primary does not answer", nothing, StateIncomplete}},
		"a replica that is left alone is no witness":        {well(at(0, gone), at(1, leftAlone)), decision{"failed", nothing, StateLost}},
		"a single instance has nobody to take its place":    {well(alone1, at(0, gone)), decision{"failed", nothing, StateLost}},
		"a replica whose fence failed is left a moment":     {well(at(0, gone), tiredOf(1), tiredOf(2)), decision{"failed", nothing, StateFailed}},

		"a primary asked to step down becomes read-only": {well(at(0, toStepDown)), decision{"begin a switchover", SetReadOnly{0}, StateHealthy}},
		"so does one whose pod goes":                     {well(at(0, terminating)), decision{"begin a switchover", SetReadOnly{0}, StateHealthy}},
		"not for replicas that lag":                      {well(at(0, toStepDown), at(1, fellBehind), at(2, fellBehind)), settledAs(StateHealthy)},
		"not while an attempt is fresh":                  {well(at(0, toStepDown), gaveUp), settledAs(StateHealthy)},
		"not when it is left alone":                      {well(at(0, toStepDown, leftAlone)), settledAs(StateHealthy)},
		"while it is read-only a replica catches up":     {well(at(0, toStepDown, closed, has("0:1-12"))), decision{"the heir catches up", nothing, StateIncomplete}},
		"one with everything is promoted":                {well(at(0, toStepDown, closed, has("0:1-12")), at(2, has("0:1-12"))), decision{"switch over", PromoteInStatus{2, 0}, StateIncomplete}},
		"not while clients hang":                         {well(at(0, toStepDown, closed, waiting1)), decision{"the heir catches up", nothing, StateIncomplete}},
		"without an heir it is made writable again":      {well(at(0, toStepDown, closed, has("0:1-12")), at(1, sqlFailed), at(2, sqlFailed)), decision{"make the primary writable", MakeWritable{0, 1}, StateIncomplete}},
		"so it is when it takes too long":                {well(at(0, toStepDown, closed, has("0:1-12")), gaveUp), decision{"make the primary writable", MakeWritable{0, 1}, StateIncomplete}},
		"the statement is given time":                    {well(at(0, toStepDown, hangs(killAfter-1))), decision{"a statement runs in the primary", nothing, StateHealthy}},
		"also if super_read_only says so already":        {well(at(0, toStepDown, hangs(killAfter), func(s *Instance) { s.SuperReadOnly = true })), decision{"cut off the clients", KillConnections{0}, StateHealthy}},
		"then clients are cut off":                       {well(at(0, toStepDown, hangs(killAfter))), decision{"cut off the clients", KillConnections{0}, StateHealthy}},
		"then it is cancelled":                           {well(at(0, toStepDown, hangs(switchBound)), gaveUp), decision{"cancel a hanging statement", CancelPending{0}, StateHealthy}},
		"a demotion that is done is taken back":          {well(at(1, toStepDown)), decision{"the demotion is done", ClearDemote{1}, StateHealthy}},

		"the old primary loses its label first":        {well(promoted), decision{"a second label of the primary", SetRole{0, NoRole}, StateIncomplete}},
		"the new one stops receiving":                  {well(promoted, at(0, unlabelled)), decision{"the primary receives", StopIO{[]int{1}}, StateIncomplete}},
		"it applies what it has":                       {well(promoted, at(0, unlabelled), at(1, fencedOff, behind)), decision{"the primary applies", nothing, StateIncomplete}},
		"it is started when it does not":               {well(promoted, at(0, unlabelled), at(1, fencedOff, sqlStopped, behind)), decision{"the primary does not apply", RestartSQL{1}, StateIncomplete}},
		"it is configured":                             {well(promoted, at(0, unlabelled), at(1, fencedOff)), decision{"configure the primary", ConfigurePrimary{1, 1}, StateIncomplete}},
		"it is opened when it has a replica":           {well(started), decision{"make the primary writable", MakeWritable{1, 1}, StateIncomplete}},
		"replicas come first, so that no client hangs": {well(started, at(0, follow(2)), at(2, follow(0))), decision{"a replica receives from another", StopIO{[]int{0}}, StateIncomplete}},
		"unless there is none":                         {well(started, at(0, gone), at(2, gone)), decision{"make the primary writable", MakeWritable{1, 1}, StateIncomplete}},
		"not beside somebody else who can acknowledge": {well(started, at(0, opened, leftAlone)), settledAs(StateIncomplete)},
		"an empty one waits for everybody":             {well(started, at(0, emptied, gone), at(1, emptied), at(2, emptied)), decision{"configure a replica", ConfigureReplica{2, 1}, StateIncomplete}},
		"it gets its label when it is open":            {well(started, at(1, opened)), decision{"label the primary", SetRole{1, Primary}, StateIncomplete}},
		"wrong settings are set right while it serves": {well(at(0, func(s *Instance) { s.SemiSync.WaitFor = 2 })), decision{"configure the primary", ConfigurePrimary{0, 1}, StateIncomplete}},
		"an old primary keeps nobody waiting":          {well(started, at(0, waiting1)), decision{"hung clients of a replica", KillConnections{0}, StateIncomplete}},

		"a second writable instance is closed":                  {well(at(2, opened)), decision{"a second writable instance", SetReadOnly{2}, StateDegraded}},
		"its clients are cut off if that hangs":                 {well(at(2, opened, hangs(killAfter))), decision{"hung clients of a replica", KillConnections{2}, StateDegraded}},
		"one that is left alone is not":                         {well(at(2, opened, leftAlone)), settledAs(StateDegraded)},
		"an errant replica is isolated":                         {well(at(2, has("0:1-9,2:1"))), decision{"isolate an errant replica", StopIO{[]int{2}}, StateDegraded}},
		"and hidden":                                            {well(at(2, has("0:1-9,2:1"), fencedOff)), decision{"hide an errant replica", SetRole{2, NoRole}, StateDegraded}},
		"and left so":                                           {well(at(2, has("0:1-9,2:1"), fencedOff, unlabelled)), settledAs(StateDegraded)},
		"a replica in flight is not ahead":                      {well(at(2, has("0:1-10"))), settledAs(StateHealthy)},
		"nor is one while commits wait":                         {well(at(0, waiting1), at(2, has("0:1-10")), aheadSince(time.Hour)), settledAs(StateHealthy)},
		"one that stays ahead is unhealthy":                     {well(at(2, has("0:1-10")), aheadSince(aheadAfter)), settledAs(StateDegraded)},
		"a thread that somebody stopped is started":             {well(at(1, sqlStopped)), decision{"a replica does not apply", RestartSQL{1}, StateDegraded}},
		"one that an error stopped is reported":                 {well(at(1, sqlFailed)), settledAs(StateDegraded)},
		"a replica that does not receive is told to":            {well(at(1, fencedOff)), decision{"a replica does not receive", StartIO{1}, StateDegraded}},
		"one that connects is left to it":                       {well(at(1, func(s *Instance) { s.Channel.IO = Connecting })), settledAs(StateDegraded)},
		"a replica of another stops receiving":                  {well(at(1, follow(2))), decision{"a replica receives from another", StopIO{[]int{1}}, StateDegraded}},
		"it keeps its relay log until it is applied":            {well(at(1, follow(2), fencedOff, behind)), settledAs(StateDegraded)},
		"then it is told to follow":                             {well(at(1, follow(2), fencedOff)), decision{"configure a replica", ConfigureReplica{1, 0}, StateDegraded}},
		"a replica that does not acknowledge is configured":     {well(at(1, func(s *Instance) { s.SemiSync = SemiSync{} })), decision{"configure a replica", ConfigureReplica{1, 0}, StateDegraded}},
		"an empty replica is cloned":                            {well(at(1, emptied, unlabelled)), decision{"clone a replica", CloneFrom{1, 0}, StateDegraded}},
		"not while it is":                                       {well(at(1, emptied, unlabelled, func(s *Instance) { s.Clone = Cloning })), settledAs(StateDegraded)},
		"one that needs what is deleted is reported":            {well(at(0, func(s *Instance) { s.Purged = set("0:1-9") }), at(1, restarted, has("0:1-5"))), settledAs(StateDegraded)},
		"a closed primary is not opened before there is a copy": {well(at(0, closed), at(1, emptied), at(2, emptied)), decision{"clone a replica", CloneFrom{1, 0}, StateIncomplete}},
		"until somebody follows":                                {well(at(0, closed), at(2, emptied)), decision{"make the primary writable", MakeWritable{0, 1}, StateIncomplete}},
		"a replica gets its label":                              {well(at(1, unlabelled)), decision{"label a replica", SetRole{1, Replica}, StateHealthy}},
		"not one that is far behind":                            {well(at(1, unlabelled, behindBy(31*time.Second)), maxDelay), decision{"settled", nothing, StateHealthy}},
		"but one that has caught up by half":                    {well(at(1, unlabelled, behindBy(30*time.Second)), maxDelay), decision{"label a replica", SetRole{1, Replica}, StateHealthy}},
		"a replica that falls far behind loses its label":       {well(at(1, behindBy(61*time.Second)), maxDelay), decision{"hide a replica that lags", SetRole{1, NoRole}, StateHealthy}},
		"not while it is as far as allowed":                     {well(at(1, behindBy(60*time.Second)), maxDelay), decision{"settled", nothing, StateHealthy}},
		"nor if nothing is said about it":                       {well(at(1, behindBy(time.Hour))), decision{"settled", nothing, StateHealthy}},
		"a stop lets it keep its label":                         {well(stopAsked, at(1, behindBy(61*time.Second)), maxDelay), decision{"stop reached", nothing, StateHealthy}},
		"one that is left alone does not":                       {well(at(1, unlabelled, leftAlone)), settledAs(StateHealthy)},
		"an act that did not help is repeated after a moment":   {well(at(1, fencedOff), tiredOf(1)), settledAs(StateDegraded)},

		"a new cluster takes its first instance":          {well(brandNew), decision{"choose the first primary", PromoteInStatus{0, None}, StateIncomplete}},
		"when all are there":                              {well(brandNew, at(2, gone)), decision{"no primary", nothing, StateIncomplete}},
		"a lost status takes who serves":                  {well(func(o *Observed) { o.Primary = None }, at(1, has("0:1-9,1:1"))), decision{"choose the first primary", PromoteInStatus{0, None}, StateIncomplete}},
		"or who has most":                                 {well(brandNew, at(2, has("0:1")), at(1, has("0:1-2"))), decision{"choose the first primary", PromoteInStatus{1, None}, StateIncomplete}},
		"who is written to and lacks something is closed": {well(brandNew, at(0, opened), at(1, has("1:1-2"))), decision{"a pretender", SetReadOnly{0}, StateIncomplete}},
		"a copy from outside comes first":                 {well(brandNew, chosen, fromOutside), decision{"copy from outside", CloneFrom{0, None}, StateCloning}},
		"it is waited for":                                {well(brandNew, chosen, fromOutside, at(0, func(s *Instance) { s.Clone = Cloning })), decision{"copying from outside", nothing, StateCloning}},
		"and noted":                                       {well(brandNew, chosen, fromOutside, at(0, has("9:1-5"), func(s *Instance) { s.Clone = Cloned })), decision{"copied from outside", nothing, StateCloning}},
		"a restore is left alone":                         {well(func(o *Observed) { o.Restore.Wanted = true }, at(0, closed)), decision{"restoring", nothing, StateRestoring}},
		"who is offline is left alone":                    {well(func(o *Observed) { o.Offline = true }, at(0, gone)), decision{"offline", nothing, StateOffline}},

		"a stop of a healthy cluster is reached at once": {well(stopAsked), decision{"stop reached", nothing, StateHealthy}},
		"after that nothing is touched":                  {well(stopAsked, stopReached, at(0, gone)), decision{"stopped", nothing, StateFailed}},
		"a start forgets it before anything else":        {well(stopReached, at(0, gone)), decision{"started", nothing, StateFailed}},
		"a stop takes a switchover back":                 {well(stopAsked, at(0, closed, toStepDown)), decision{"make the primary writable", MakeWritable{0, 1}, StateIncomplete}},
		"and its statement":                              {well(stopAsked, at(0, hangs(0), toStepDown)), decision{"cancel a hanging statement", CancelPending{0}, StateHealthy}},
		"a stop finishes what was agreed on":             {well(stopAsked, promoted), decision{"a second label of the primary", SetRole{0, NoRole}, StateIncomplete}},
		"a stop fences nobody":                           {well(stopAsked, at(0, gone)), decision{"failed", nothing, StateFailed}},
		"a stop takes a fence back":                      {well(stopAsked, at(0, gone), at(1, fencedOff)), decision{"take a fence back", StartIO{1}, StateFailed}},
		"unless all is ready":                            {well(stopAsked, at(0, gone), at(1, fencedOff), at(2, fencedOff)), decision{"fail over", PromoteInStatus{1, 0}, StateFailed}},
		"a stop waits for a copy":                        {well(stopAsked, at(1, emptied, func(s *Instance) { s.Clone = Cloning })), decision{"quiescing", nothing, StateDegraded}},
		"a stop begins none":                             {well(stopAsked, at(1, emptied)), decision{"stop reached", nothing, StateDegraded}},
		"a stop that takes too long is reached":          {well(stopAsked, at(0, gone), askedSince(stopBound)), decision{"stop reached", nothing, StateFailed}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			used[p.Rule] = true
			if diff := cmp.Diff(row.want, decision{p.Rule, p.Do, p.State}); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
	for _, r := range rules() {
		if !used[r.name] {
			t.Errorf("expected a case for the rule %q, found none", r.name)
		}
	}
}

func missed(looks int, since time.Duration) func(*Observed) {
	return func(o *Observed) {
		o.Memory.Instances[0].Misses, o.Memory.Instances[0].UnreachableSince = looks, o.Now.Add(-since)
	}
}

func aheadSince(since time.Duration) func(*Observed) {
	return func(o *Observed) { o.Memory.Instances[2].AheadSince = o.Now.Add(-since) }
}

func askedSince(since time.Duration) func(*Observed) {
	return func(o *Observed) { o.Memory.StopAskedSince = o.Now.Add(-since) }
}

func alone1(o *Observed) {
	o.Replicas, o.Instances = 1, o.Instances[:1]
}

func chosen(o *Observed)      { o.Primary = 0 }
func fromOutside(o *Observed) { o.Source.Wanted = true }
func stopReached(o *Observed) { o.Stop = &StopRecord{Since: o.Now} }

func TestConditions(t *testing.T) {
	type told struct{ Initialized, Available, Healthy, Active string }
	say := func(c Condition) string { return string(c.Status) + " " + c.Reason + ": " + c.Message }
	const up, active = "True Initialized: The cluster has a primary", "True ClusteringActive: Clustering is active"
	for name, row := range map[string]struct {
		in   Observed
		want told
	}{
		"a healthy cluster": {well(), told{
			up, "True Healthy: The primary, instance 0, is in service", "True Healthy: Every replica follows the primary, instance 0", active,
		}},
		"a stopped cluster is unknown, and says what is seen": {well(stopAsked, stopReached), told{
			up, "Unknown ClusteringStopped: Clustering is stopped; what is seen looks Healthy",
			"Unknown ClusteringStopped: Clustering is stopped; what is seen looks Healthy", "False ClusteringInactive: Clustering is stopped",
		}},
		"a stop says what it finishes": {well(stopAsked, at(0, closed)), told{
			"True Initialized: The cluster has a primary", "False Incomplete: instance 0 is the primary and read-only",
			"False Incomplete: instance 0 is the primary and read-only",
			"True Quiescing: Clustering is asked to stop and finishes: the primary, instance 0, is read-only",
		}},
		"a primary that misses a look is unknown": {well(at(0, silent)), told{
			"True Initialized: The cluster has a primary", "Unknown PrimaryUnanswered: The primary, instance 0, did not answer",
			"False Incomplete: instance 0 does not answer", active,
		}},
		"a replica that is ahead is unhealthy": {well(at(2, has("0:1-9:11")), aheadSince(time.Minute)), told{
			"True Initialized: The cluster has a primary", "True Degraded: The primary, instance 0, is in service",
			"False Degraded: instance 2 is ahead of the primary by " + uuid(0) + ":11, so that it will skip what the primary numbers so; delete its volume claim and pod to have it cloned anew", active,
		}},
		"a failed thread is named by its number": {well(at(1, sqlFailed)), told{
			"True Initialized: The cluster has a primary", "True Degraded: The primary, instance 0, is in service",
			"False Degraded: instance 1 stopped applying with error 1062; SHOW REPLICA STATUS in it says more", active,
		}},
		"a cluster without a primary is not initialized": {well(brandNew, at(2, gone)), told{
			"False Incomplete: the first primary is chosen once every instance answers; instance 2 does not",
			"False Incomplete: instance 2 does not answer", "False Incomplete: instance 2 does not answer", active,
		}},
		"a switchover that cannot begin says so": {well(at(0, toStepDown), at(1, sqlFailed), at(2, sqlFailed)), told{
			"True Initialized: The cluster has a primary", "True Degraded: The primary, instance 0, is in service",
			"False Degraded: instance 1 stopped applying with error 1062; SHOW REPLICA STATUS in it says more; instance 2 stopped applying with error 1062; " +
				"SHOW REPLICA STATUS in it says more; the switchover from instance 0 waits for a replica that is in sync and ready", active,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			got := told{say(p.Initialized), say(p.Available), say(p.Healthy), say(p.ClusteringActive)}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStopSaysWhatIsLeft(t *testing.T) {
	p := Decide(well(stopAsked, at(0, gone), askedSince(time.Minute)))
	want := &StopRecord{Since: worldTime(), Left: "the primary, instance 0, does not answer"}
	if diff := cmp.Diff(want, p.Stop); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if p.Available.Status != metav1.ConditionUnknown || p.ClusteringActive.Status != metav1.ConditionFalse || !p.Events[0].Warning {
		t.Errorf("expected a stop with a warning, found %+v, %+v, %+v", p.Available, p.ClusteringActive, p.Events)
	}
	o := well(stopAsked)
	o.Stop = p.Stop
	if again := Decide(o); again.Stop != p.Stop || again.ClusteringActive != p.ClusteringActive || len(again.Events) != 0 {
		t.Errorf("expected the record and its message to stay, without events, found %+v, %+v, %+v", again.Stop, again.ClusteringActive, again.Events)
	}
}

func TestReportsOfInstances(t *testing.T) {
	p := Decide(well(at(0, func(s *Instance) { s.Purged = set("0:1-3") }), at(1, has("0:1-9,1:1-2"), func(s *Instance) { s.Channel.Lag = -1 }), at(2, has("0:4-9"), fellBehind)))
	type row struct {
		Errant, Gap string
		InSync      bool
		Lag         time.Duration
	}
	var got []row
	for _, r := range p.Instances {
		got = append(got, row{r.Errant.String(), r.Gap.String(), r.InSync, r.Lag})
	}
	want := []row{{}, {Errant: uuid(1) + ":1-2", Lag: -1}, {Gap: uuid(0) + ":1-3", InSync: true, Lag: time.Minute}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{1}, p.Errant); diff != "" || p.Synced != 1 {
		t.Errorf("expected instance 1 to be errant and one in sync, found %v and %d", p.Errant, p.Synced)
	}
}
