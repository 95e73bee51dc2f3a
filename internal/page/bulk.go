// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// maxBulk limits the number of objects in one request.
const maxBulk = 50

// bulkResult is the result of a request for several objects.
type bulkResult struct {
	// Done is the number of objects to which the request was applied. Refused lists the other objects, each with the
	// reason.
	Done    int           `json:"done"`
	Refused []bulkRefusal `json:"refused"`
}

// bulkRefusal describes an object that was not changed. Object is the text that identified the object in the request.
type bulkRefusal struct {
	Object string `json:"object"`
	Error  string `json:"error"`
}

// flipSwitches stops or starts several objects with the caller's own token. It validates all objects before it changes
// the first object. If one change is rejected, the other objects are still changed.
func (s *Server) flipSwitches(ctx context.Context, r callerRequest) {
	flips, err := s.parseFlips(r.Request)
	if err != nil {
		http.Error(r.writer, err.Error(), http.StatusBadRequest)
		return
	}
	result := bulkResult{Refused: []bulkRefusal{}}
	for i, f := range flips {
		changed, err := f.write(ctx, r.caller.Client, s.Clock)
		if err != nil {
			_, text := describeError(err)
			result.Refused = append(result.Refused, bulkRefusal{r.PostForm["object"][i], text})
			continue
		}
		s.logFlip(r.caller.Name, f, changed)
		result.Done++
	}
	r.writer.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(r.writer).Encode(result) // The client may have disconnected.
}

// parseFlips parses the action and the objects in a form. Each object is given as the query of its details page.
func (s *Server) parseFlips(r *http.Request) ([]flip, error) {
	if err := r.ParseForm(); err != nil {
		return nil, fmt.Errorf("expected a form of at most %d kB, found a larger or invalid one", maxBodyBytes>>10)
	}
	objects := r.PostForm["object"]
	if verb := r.PostForm.Get("verb"); verb != stopVerb && verb != startVerb {
		return nil, fmt.Errorf("expected the verb stop or start for several objects, found %.40q", verb)
	}
	if len(objects) == 0 || len(objects) > maxBulk {
		return nil, fmt.Errorf("expected 1 to %d objects, found %d", maxBulk, len(objects))
	}
	var flips []flip
	for _, text := range objects {
		target, err := url.ParseQuery(text)
		if err != nil {
			return nil, fmt.Errorf("expected the query of an object, found %.40q", text)
		}
		f, err := s.parseFlip(r, target)
		if err != nil {
			return nil, err
		}
		flips = append(flips, f)
	}
	return flips, nil
}
