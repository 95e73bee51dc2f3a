// SPDX-License-Identifier: Apache-2.0

// Package cf tells how an app is pushed, restarted, rolled and deleted through the CF API: with curl's words, and with
// the cf client where there is one. Every line that is printed was observed.
package cf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/process"
	"github.com/torpor-dev/torpor/local/demo/output"
)

const (
	system, org, space = "torpor-system", "the-org", "dev"
	limit              = 2 * time.Minute
	stopLimit          = 40 * time.Second
)

var errInterrupted = errors.New("interrupted; expected to be let through to the end, which takes about a minute")

// Config says where the story finds its programs.
type Config struct {
	// Dir keeps everything that is made; it is emptied first.
	Dir string
	// Local, Torpor and Kubectl are the programs; CF is the cf client, empty if there is none.
	Local, Torpor, Kubectl, CF string
	// ConfigDir is the folder of the manifests.
	ConfigDir string
	// Out gets the story; Colour allows escape sequences in it.
	Out    io.Writer
	Colour bool
}

// play is what stands, and the telling of it.
type play struct {
	Config
	ctx      context.Context
	story    *output.Story
	starter  *process.Starter
	children []*process.Process
	// api is the CF API's address; tokens let in by name.
	api    string
	http   *http.Client
	tokens map[string]string
	// app is the GUID of the app.
	app string
}

// Run tells the whole story and stops everything again. It returns nil only if all of it was observed.
func Run(ctx context.Context, c Config) error {
	began := time.Now()
	var err error
	for _, path := range []*string{&c.Dir, &c.ConfigDir} {
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("resolve folder: %w", err)
		}
	}
	if err := errors.Join(os.RemoveAll(c.Dir), os.MkdirAll(c.Dir, 0o700)); err != nil {
		return fmt.Errorf("empty demo folder: %w", err)
	}
	p := &play{Config: c, ctx: ctx, story: &output.Story{Out: c.Out, Colour: c.Colour}, starter: process.NewStarter(), tokens: map[string]string{}}
	err = p.all()
	switch {
	case ctx.Err() != nil:
		err = errInterrupted
	case err != nil:
		err = fmt.Errorf("step %d: %w; logs are in %s", p.story.Steps(), err, c.Dir)
	}
	p.story.Step("Stop everything")
	left := p.stopAll()
	if left == nil {
		p.story.Saw("every process that was started has ended")
	}
	if err := errors.Join(err, left); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "\nAll of it was observed, in %.0f seconds.\n", time.Since(began).Seconds())
	return nil
}

// all does the acts one after the other, up to the first that fails.
func (p *play) all() error {
	for _, act := range []func() error{p.controlPlane, p.rights, p.torpor, p.push, p.restart, p.atomic, p.rolling, p.cancel, p.refused, p.client, p.remove} {
		if err := act(); err != nil {
			return err
		}
	}
	return nil
}

func (p *play) path(elem ...string) string { return filepath.Join(append([]string{p.Dir}, elem...)...) }

func (p *play) admin() string { return p.path("hub", "admin.kubeconfig") }
