package hibernate
import ("testing";"github.com/torpor-dev/torpor/actuator";hivev1 "github.com/torpor-dev/torpor/api/hive/v1";"fmt";"strings";"time")
func (a *atlas) story(path []int) string { var b strings.Builder; for _,id:=range path { w:=a.worlds[id]; fmt.Fprintf(&b,"%s %v api%d %v %v\n    told %v/%v => %s\n", w.wish,w.machines,w.api,w.nodes,w.sleep,w.told.hibernating.Reason,w.told.ready.Reason,a.steps[id].plan.Rule)}; return b.String()}
func starts() []world {
	var list []world
	st := []toyMachine{{actuator.Running,0},{actuator.Stopping,1},{actuator.Stopped,0},{actuator.Starting,1}}
	sleeps := []toyRecord{noRecord(),
	 {true, 3e9, never, never, [2]recorded{recordedReady,recordedReady}},
	 {true, 3e9, never, never, [2]recorded{notRecorded,notRecorded}},
	 {true, age(5*time.Minute), 3e9, never, [2]recorded{recordedReady,recordedReady}},
	 {true, forever, age(2*time.Minute), age(time.Minute), [2]recorded{recordedReady,recordedReady}},
	 {true, forever, forever, forever, [2]recorded{recordedReady,recordedReady}},
	}
	for _, wish := range []hivev1.PowerState{hivev1.PowerStateRunning,hivev1.PowerStateHibernating} {
	for _, m0 := range st { for _, m1 := range st { for _, s := range sleeps { for _, c := range []certificate{expired,allValid} { for _, api := range []int{0,apiBoot} {
		w := world{wish:wish, machines:[2]toyMachine{m0,m1}, sleep:s, api:api}
		if m0.state != actuator.Running { if api!=0 {continue} }
		for i := range w.nodes { w.nodes[i]=toyNode{certificate:c, ready:true, seen: age(time.Minute)}; if w.machines[i].state==actuator.Stopped {w.nodes[i].certificate=expired}; if w.reports(i) {w.nodes[i].seen=0}}
		list = append(list,w)
	}}}}}}
	return list
}

func forgotten(w world) bool { o:=w.observe(undisturbed); return w.wantsRunning() && w.all(actuator.Running) && !o.resuming() && !o.aftercare() && (w.nodes[0].certificate!=allValid||w.nodes[1].certificate!=allValid)}
func TestTmp(t *testing.T) {
	a := newAtlas()
	layer := map[int]bool{}
	for _, w := range starts() { id:=a.id(w); a.rest(t,id); for _,p:=range a.path(t,id){layer[p]=true} }
	t.Log("starts",len(starts()),"worlds",len(a.worlds))
	grow := func(layer map[int]bool, ds []disturbance) map[int]bool {
	 out := map[int]bool{}
	 for id := range layer { if a.toRest[id]==0 && a.next(id).to!=id {continue}
	   for _, d := range ds {
	   to := a.id(a.worlds[id].disturb(d)); a.rest(t,to); if out[to] {continue}; for _,p:=range a.path(t,to){out[p]=true}}}
	 return out }
	start:=time.Now()
	one := grow(layer, disturbances()); t.Log(len(one), len(a.worlds), time.Since(start))
	two := grow(one, disturbances()); t.Log(len(two), len(a.worlds), time.Since(start))
	m:=0; for _,r:=range a.toRest { m=max(m,r)}
	t.Log("max",m)
	bad:=0
	for id := range a.worlds { to:=a.steps[id].to; if to<0 {continue}; w,n:=a.worlds[id],a.worlds[to]
	  if !forgotten(w)&&forgotten(n) { bad++; if bad<4 {t.Log("FORGOT\n"+a.story(a.path(t,id)))}}
	}
	t.Log("forgot",bad); bad=0
	for id := range a.worlds { if a.steps[id].to!=id {continue}; w:=a.worlds[id]
	 ok := w.all(actuator.Stopped)&&w.told.hibernating.Reason=="Hibernating"&&w.told.ready.Reason=="Hibernating"
	 if w.wantsRunning() { ok = w.all(actuator.Running)&&w.told.ready.Reason=="Running" && (forgotten(w)|| w.nodes[0].certificate==allValid&&w.nodes[1].certificate==allValid)}
	 if !ok {bad++; t.Log(a.story([]int{id}))}}
	bad=0
	for id := range a.worlds { to:=a.steps[id].to; if to<0 {continue}; w,n:=a.worlds[id],a.worlds[to]
	  if n.told.ready.Status=="True" && !forgotten(w) && !forgotten(n) && !(w.reports(0)&&w.reports(1)) { bad++; if bad<6 {t.Log("EARLY\n"+a.story(a.path(t,id)))}}
	}
	t.Log("early",bad)
}
func TestStory(t *testing.T) {
	a := newAtlas()
	w := world{wish: hivev1.PowerStateRunning, api: apiBoot, sleep:noRecord()}
	for i := range 2 { w.machines[i]=toyMachine{actuator.Running,0}; w.nodes[i]=toyNode{allValid,true,0}}
	p := a.path(t,a.id(w)); 
	t.Log("\n"+a.story(p))
	w = a.worlds[p[len(p)-1]].flip()
	p = a.path(t,a.id(w)); t.Log("\n"+a.story(p))
	w = a.worlds[p[len(p)-1]].flip()
	p = a.path(t,a.id(w)); t.Log("\n"+a.story(p))
	t.Log(a.rest(t,p[0]))
}
func TestEarly(t *testing.T) {
	for _, d := range []disturbance{statusLost,wishFlipped} {
	 for _, e := range []disturbance{statusLost,wishFlipped} {
	a := newAtlas()
	layer := map[int]bool{}
	for _, w := range starts() { id:=a.id(w); a.rest(t,id); for _,p:=range a.path(t,id){layer[p]=true} }
	grow := func(layer map[int]bool, d disturbance) map[int]bool {
	 out := map[int]bool{}
	 for id := range layer { if a.toRest[id]==0 && a.next(id).to!=id {continue}
	   to := a.id(a.worlds[id].disturb(d)); a.rest(t,to); if out[to] {continue}; for _,p:=range a.path(t,to){out[p]=true}}
	 return out }
	one := grow(layer, d); grow(one,e)
	bad:=0
	for id := range a.worlds { to:=a.steps[id].to; if to<0 {continue}; w,n:=a.worlds[id],a.worlds[to]
	  o := w.observe(undisturbed)
	  if n.told.ready.Status=="True" && o.resuming() && !(w.reports(0)&&w.reports(1)) { bad++; if bad<9 && (d==wishFlipped && e==wishFlipped||d==statusLost&&e==wishFlipped) {t.Log("EARLY\n"+a.story(a.back(id)))}}
	}
	if bad>0 {t.Log("early",d,"|",e,bad)}
	}}
}

func (a *atlas) back(id int) []int { var p []int; p=append(p,id); for range 12 { f:=-1; for i,s:=range a.steps { if s.to==p[0]&&i!=p[0] {f=i;break} }; if f<0 {break}; p=append([]int{f},p...)}; return append(p,a.steps[id].to) }
