// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// logServer serves the Pods of one app and their logs, subject to each caller's rights.
type logServer struct {
	clock *testingclock.FakeClock
	store *Store
	url   string
	// reading, if not nil, delays each log until the server has received from this channel.
	reading chan struct{}

	mu sync.Mutex
	// Each Pod has one line, which is its name. A Pod in talkative has more lines.
	pods         []corev1.Pod
	talkative    map[string]int
	broken       bool
	denied       map[string]bool
	reads, looks map[string]int
	reviews      int
}

func newLogServer(t *testing.T, pods int) *logServer {
	t.Helper()
	fake := testingclock.NewFakeClock(logBegin.Add(time.Hour))
	s := &logServer{clock: fake, store: &Store{followers: newLogFollowers(fake), stopped: make(chan struct{})}, talkative: map[string]int{}, denied: map[string]bool{}, reads: map[string]int{}, looks: map[string]int{}}
	for i := range pods {
		s.addPod(fmt.Sprint("shop-", i))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/space/pods", s.listPods)
	mux.HandleFunc("GET /api/v1/namespaces/space/pods/{pod}/log", s.readLog)
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", s.reviewAccess)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *logServer) addPod(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = append(s.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: name, UID: types.UID(name)}})
}

// user returns the user of a request's token.
func user(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func answerJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *logServer) listPods(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks[user(r)]++
	answerJSON(w, http.StatusOK, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: s.pods})
}

func (s *logServer) readLog(w http.ResponseWriter, r *http.Request) {
	if s.reading != nil {
		<-s.reading
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := r.PathValue("pod")
	s.reads[user(r)]++
	switch {
	case s.broken:
		answerJSON(w, http.StatusInternalServerError, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError})
	case s.denied[user(r)]:
		answerJSON(w, http.StatusForbidden, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden})
	default:
		begin := s.clock.Now().Add(-2 * time.Second).Add(time.Duration(slices.IndexFunc(s.pods, func(p corev1.Pod) bool { return p.Name == pod })))
		for i := range max(1, s.talkative[pod]) {
			_, _ = fmt.Fprintf(w, "%s %s %d\n", begin.Add(time.Duration(i)*time.Millisecond).Format(time.RFC3339Nano), pod, i)
		}
	}
}

func (s *logServer) reviewAccess(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SelfSubjectAccessReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reviews++
	asked := review.Spec.ResourceAttributes
	review.Status.Allowed = asked.Namespace == "space" && asked.Verb == "get" && asked.Resource == "pods" && asked.Subresource == "log" && !s.denied[user(r)]
	answerJSON(w, http.StatusCreated, review)
}

// counts returns how many logs a caller has read, and how many reviews it has caused.
func (s *logServer) counts(name string) (reads, reviews int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads[name], s.reviews
}

func (s *logServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *logServer) caller(t *testing.T, name string) *authorization.Caller {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	cfg := &rest.Config{Host: s.url, BearerToken: name, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	c, err := client.New(cfg, client.Options{Mapper: mapper})
	testenv.ExpectNoError(t, err)
	core, err := corev1client.NewForConfig(cfg)
	testenv.ExpectNoError(t, err)
	return &authorization.Caller{Name: name, Client: c, Core: core}
}

// follow polls for the lines that are at most as old as since.
func (s *logServer) follow(ctx context.Context, by *authorization.Caller, since time.Duration, limit int) (string, error) {
	app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "shop", UID: "shop"}}
	lines, err := s.store.ReadLogs(ctx, by, app, LogWindow{From: s.clock.Now().Add(-since).UnixNano(), Until: math.MaxInt64, Limit: limit})
	var all []string
	for _, l := range lines {
		all = append(all, string(l.Payload))
	}
	return strings.Join(all, "|"), err
}

func (s *logServer) expectFollowed(t *testing.T, by *authorization.Caller, since time.Duration, limit int, want string) {
	t.Helper()
	found, err := s.follow(t.Context(), by, since, limit)
	testenv.ExpectNoError(t, err)
	testenv.ExpectEqual(t, "the lines that "+by.Name+" sees", want, found)
}

func (s *logServer) expectCounts(t *testing.T, when string, alice, bob, reviews int) {
	t.Helper()
	ofAlice, asked := s.counts("alice")
	ofBob, _ := s.counts("bob")
	if ofAlice != alice || ofBob != bob || asked != reviews {
		t.Errorf("%s: expected %d and %d readings and %d reviews, found %d, %d and %d", when, alice, bob, reviews, ofAlice, ofBob, asked)
	}
}

func TestFollowersOfAnAppShareItsLines(t *testing.T) {
	s := newLogServer(t, 2)
	alice, bob := s.caller(t, "alice"), s.caller(t, "bob")
	const both = "shop-0 0|shop-1 0"
	s.expectFollowed(t, alice, 3*time.Second, 100, both)
	s.expectFollowed(t, bob, 4*time.Second, 100, both)
	s.expectCounts(t, "one after the other", 2, 0, 1)
	s.expectFollowed(t, bob, time.Second, 100, "")
	s.expectFollowed(t, bob, 3*time.Second, 1, "shop-0 0")
	s.expectCounts(t, "for other windows", 2, 0, 3)
	s.expectFollowed(t, bob, time.Minute, 100, both)
	s.expectCounts(t, "for an older window than the round's", 2, 2, 3)
	s.clock.Step(followInterval)
	s.expectFollowed(t, alice, 3*time.Second, 100, both)
	s.expectCounts(t, "a second later", 4, 2, 3)
	s.addPod("shop-2")
	s.expectFollowed(t, bob, 3*time.Second, 100, both+"|shop-2 0")
	s.expectCounts(t, "with another Pod", 4, 5, 3)
	s.change(func() { s.pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}} })
	s.expectFollowed(t, alice, 3*time.Second, 100, both+"|shop-2 0")
	s.expectCounts(t, "with another container", 7, 5, 3)
}

// A revoked right takes effect at the next poll, even while other callers may read the logs.
func TestCallersWithoutTheRightGetNoSharedLines(t *testing.T) {
	s := newLogServer(t, 2)
	alice, bob := s.caller(t, "alice"), s.caller(t, "bob")
	s.expectFollowed(t, alice, 3*time.Second, 100, "shop-0 0|shop-1 0")
	s.expectFollowed(t, bob, 3*time.Second, 100, "shop-0 0|shop-1 0")
	s.change(func() { s.denied["bob"] = true })
	found, err := s.follow(t.Context(), bob, 3*time.Second, 100)
	var refused *apierrors.CFError
	if !errors.As(err, &refused) || refused.Status != http.StatusForbidden || found != "" {
		t.Errorf("expected 403 and nothing, found %q (%v)", found, err)
	}
}

// A caller that polls during another caller's round waits for that round. If the reading caller disconnects, the other
// callers do not get an error.
func TestFollowersWaitForTheCurrentRound(t *testing.T) {
	s := newLogServer(t, 2)
	s.reading = make(chan struct{})
	alice, bob := s.caller(t, "alice"), s.caller(t, "bob")
	leaving, leave := context.WithCancel(t.Context())
	var looks errgroup.Group
	looks.Go(func() error {
		_, _ = s.follow(leaving, alice, 3*time.Second, 100) // Alice disconnects, so both results are possible.
		return nil
	})
	testenv.Eventually(t, "alice reads", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return testenv.ErrorIf(s.looks["alice"] == 0, "she does not")
	})
	looks.Go(func() error {
		found, err := s.follow(t.Context(), bob, 3*time.Second, 100)
		return errors.Join(err, testenv.ErrorIf(found != "shop-0 0|shop-1 0", "bob found %q", found))
	})
	leave()
	close(s.reading)
	testenv.ExpectNoError(t, looks.Wait())
}

// If the logs do not fit into a shared round, they are read for each caller, and no line is lost.
func TestLogsThatExceedARoundAreReadForEachCaller(t *testing.T) {
	s := newLogServer(t, 2)
	s.talkative["shop-0"] = maxSharedLines + 500
	alice, bob := s.caller(t, "alice"), s.caller(t, "bob")
	s.expectFollowed(t, alice, 2*time.Second-1200*time.Millisecond, 2, "shop-0 1200|shop-0 1201")
	s.expectCounts(t, "the shared round is not enough", 4, 0, 0)
	s.expectFollowed(t, bob, 2*time.Second-1300*time.Millisecond, 1, "shop-0 1300")
	s.expectCounts(t, "no new shared round at once", 4, 2, 0)
	s.clock.Step(followInterval)
	s.expectFollowed(t, bob, 2*time.Second-1300*time.Millisecond, 1, "shop-0 1300")
	s.expectCounts(t, "no new shared round a second later", 4, 4, 0)
}

func TestAFailedReadingIsNotShared(t *testing.T) {
	s := newLogServer(t, 1)
	s.broken = true
	alice, bob := s.caller(t, "alice"), s.caller(t, "bob")
	if found, err := s.follow(t.Context(), alice, 3*time.Second, 100); err == nil {
		t.Errorf("expected an error, found %q", found)
	}
	s.change(func() { s.broken = false })
	s.expectFollowed(t, bob, 3*time.Second, 100, "shop-0 0")
}

func TestRepeatedPollsWaitForNewLines(t *testing.T) {
	look := logLook{caller: "alice", app: "shop", window: LogWindow{From: 7, Until: math.MaxInt64, Limit: 100}}
	other := look
	other.window.From = 8
	for name, test := range map[string]struct {
		look               logLook
		lines              int
		isGone, isStopping bool
		want               time.Duration
	}{
		"a repeated poll waits if the previous response had no lines":                       {look: look, want: followInterval},
		"a repeated poll waits if the previous response had less than the maximum of lines": {look: look, lines: 99, want: followInterval},
		"a repeated poll does not wait if the previous response had the maximum of lines":   {look: look, lines: 100},
		"a poll for another window does not wait":                                           {look: other},
		"the wait ends when the client disconnects":                                         {look: look, isGone: true},
		"the wait ends when the API stops":                                                  {look: look, isStopping: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, begin := newLogFollowers(clock.RealClock{}), time.Now()
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				stopped := make(chan struct{})
				f.awaitTurn(ctx, stopped, look)
				f.noteAnswer(look, test.lines)
				if test.isGone {
					leave()
				}
				if test.isStopping {
					close(stopped)
				}
				f.awaitTurn(ctx, stopped, test.look)
				testenv.ExpectEqual(t, "the wait", test.want, time.Since(begin))
			})
		})
	}
}
