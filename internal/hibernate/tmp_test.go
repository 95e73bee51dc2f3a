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
func TestTmp(t *testing.T) {
	a := newAtlas()
	layer := map[int]bool{}
	for _, w := range starts() { id:=a.id(w); a.rest(t,id); for _,p:=range a.path(t,id){layer[p]=true} }
	t.Log("starts",len(starts()),"worlds",len(a.worlds))
	one := map[int]bool{}
	for _, d := range disturbances() { n:=len(a.worlds); mine:=map[int]bool{}; 
	 for id := range layer { if a.toRest[id]==0 && a.next(id).to!=id {continue}; to := a.id(a.worlds[id].disturb(d)); a.rest(t,to); for _,p:=range a.path(t,to){mine[p]=true; one[p]=true}}
	 t.Log(d, len(mine), len(a.worlds)-n) 
	 if d==wishFlipped||d==actionRefused||d==actionPartlyRefused { n:=len(a.worlds); start:=time.Now();
	 for id := range mine { if a.toRest[id]==0 && a.next(id).to!=id {continue}; to := a.id(a.worlds[id].disturb(d)); a.rest(t,to)}
	 t.Log("   twice", len(a.worlds)-n, time.Since(start)) }
	}
	m:=0; for _,r:=range a.toRest { m=max(m,r)}
	t.Log("max",m, len(one))
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
