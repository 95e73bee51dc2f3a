// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"net/http"
)

// handleSchedules adds the handlers of the schedules tab.
func (s *Server) handleSchedules(mux *http.ServeMux) {
	mux.HandleFunc("GET /schedules", s.withSchedules(s.serveSchedules))
	mux.HandleFunc("GET /keep-awake", s.withSchedules(s.askToKeepAwake))
	mux.HandleFunc("POST /keep-awake", s.withSchedules(s.keepAwake))
	mux.HandleFunc("POST /schedule-preview", s.withSchedules(s.previewSchedule))
	mux.HandleFunc("POST /schedule-create", s.withSchedules(s.createSchedule))
}

// scheduleRequest is a request of a caller, with the schedules that the caller may list.
type scheduleRequest struct {
	callerRequest
	seen seenSchedules
}

// withSchedules identifies the caller and reviews the caller's rights before it handles a request.
func (s *Server) withSchedules(answer func(context.Context, scheduleRequest)) http.HandlerFunc {
	return s.withCaller(s.refuse, func(ctx context.Context, r callerRequest) {
		if err := r.ParseForm(); err != nil {
			writeHTML(r.writer, http.StatusBadRequest, renderLogin(loginView{Error: "Expected a form, found an invalid request."}))
			return
		}
		seen, err := s.reviewSchedules(ctx, r.caller)
		if err != nil {
			s.refuse(r.writer, r.Request, err)
			return
		}
		answer(ctx, scheduleRequest{r, seen})
	})
}

// compose returns the tab with a new form.
func (s *Server) compose(r scheduleRequest, q scheduleQuery) schedulesView {
	v := composeSchedules(r.seen, s.inventory.readActing(), q, s.Clock.Now())
	v.User, v.Form = r.caller.Name, newScheduleForm()
	return v
}

func (s *Server) serveSchedules(_ context.Context, r scheduleRequest) {
	writeHTML(r.writer, http.StatusOK, renderSchedules(s.compose(r, parseScheduleQuery(r.URL.Query()))))
}

// answerWith renders the tab with the result of a form.
func (s *Server) answerWith(r scheduleRequest, status int, change func(*schedulesView)) {
	v := s.compose(r, scheduleQuery{Page: 1})
	change(&v)
	writeHTML(r.writer, status, renderSchedules(v))
}

func (s *Server) answerProblem(r scheduleRequest, err error) {
	status, text := explainRefusal(err)
	s.answerWith(r, status, func(v *schedulesView) { v.Problem = text })
}

// askToKeepAwake renders the objects and the end of the skip for confirmation, before anything is written.
func (s *Server) askToKeepAwake(ctx context.Context, r scheduleRequest) {
	k, err := s.prepareAwake(ctx, r.caller, r.seen, r.Form)
	if err != nil {
		s.answerProblem(r, err)
		return
	}
	writeHTML(r.writer, http.StatusOK, renderAwakeQuestion(r.caller.Name, k))
}

func (s *Server) keepAwake(ctx context.Context, r scheduleRequest) {
	k, err := s.prepareAwake(ctx, r.caller, r.seen, r.PostForm)
	if err != nil {
		s.answerProblem(r, err)
		return
	}
	changed, failures := k.write(ctx, r.caller.Client)
	s.Log.Info("objects are kept awake on the page", "user", r.caller.Name, "kind", k.listed.kind(), "name", k.listed.Name,
		"namespace", k.namespace, "until", k.until, "changed", changed, "failed", len(failures))
	status := http.StatusOK
	if len(failures) > 0 {
		status = http.StatusConflict
	}
	s.answerWith(r, status, func(v *schedulesView) {
		if changed > 0 {
			v.Done = fmt.Sprintf(
				"%d of %d objects in %s are kept awake until %s.", changed, len(k.members), k.namespace, k.untilText())
		}
		if len(failures) > 0 {
			v.Problem = "Not kept awake: " + describeFailures(failures)
		}
	})
}

// previewSchedule validates a Slumber with a dry run on the API server, and renders its YAML and its next changes.
func (s *Server) previewSchedule(ctx context.Context, r scheduleRequest) {
	form := parseScheduleForm(r.PostForm)
	built, err := form.build()
	if err != nil {
		s.answerForm(r, form, flipError{http.StatusBadRequest, err.Error()})
		return
	}
	if err := createSchedule(ctx, r.caller.Client, built, true); err != nil {
		s.answerForm(r, form, err)
		return
	}
	previewed, err := form.withPreview(built, s.Clock.Now())
	if err != nil {
		s.answerForm(r, form, err)
		return
	}
	s.answerWith(r, http.StatusOK, func(v *schedulesView) { v.Form = previewed })
}

// answerForm renders the submitted form, with the reason why it was rejected.
func (s *Server) answerForm(r scheduleRequest, form scheduleForm, err error) {
	status, text := explainRefusal(err)
	s.answerWith(r, status, func(v *schedulesView) { v.Form, v.Problem = form, text })
}

func (s *Server) createSchedule(ctx context.Context, r scheduleRequest) {
	form := parseScheduleForm(r.PostForm)
	built, err := form.build()
	if err != nil {
		s.answerForm(r, form, flipError{http.StatusBadRequest, err.Error()})
		return
	}
	if err := createSchedule(ctx, r.caller.Client, built, false); err != nil {
		s.answerForm(r, form, err)
		return
	}
	s.Log.Info("a Slumber was created on the page",
		"user", r.caller.Name, "namespace", built.Namespace, "name", built.Name)
	s.answerWith(r, http.StatusCreated, func(v *schedulesView) {
		v.Done = fmt.Sprintf("The Slumber %s was created in %s. It is listed within seconds.", built.Name, built.Namespace)
	})
}
