// SPDX-License-Identifier: Apache-2.0

package checksum

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// instanceSession is a session with one instance through the program mysql, which reads statements and writes lines.
type instanceSession struct {
	ordinal int
	in      *io.PipeWriter
	out     *bufio.Reader
	queries int
	ended   chan error
}

// openSession starts a session, which ends with ctx or by close.
func (p TableComparison) openSession(ctx context.Context, ordinal int) *instanceSession {
	input, in := io.Pipe()
	out, output := io.Pipe()
	d := &instanceSession{ordinal: ordinal, in: in, out: bufio.NewReader(out), ended: make(chan error, 1)}
	go func() {
		err := p.RunMysql(ctx, ordinal, []string{"--batch", "--skip-column-names", "--raw", "--unbuffered"}, input, output)
		d.ended <- err
		ended := errors.New("the program mysql has ended")
		_ = input.CloseWithError(ended) // It always succeeds, and so does the next.
		_ = output.CloseWithError(ended)
	}()
	return d
}

// queryLines runs statements and returns the lines that they print.
func (d *instanceSession) queryLines(statement string) ([]string, error) {
	d.queries++
	end := fmt.Sprintf("answer %d ends", d.queries)
	if _, err := fmt.Fprintf(d.in, "%s;\nselect '%s';\n", statement, end); err != nil {
		return nil, d.explainEnd(err)
	}
	var lines []string
	for {
		line, err := d.out.ReadString('\n')
		if err != nil {
			return nil, d.explainEnd(err)
		}
		line = strings.TrimSuffix(line, "\n")
		if line == end {
			return lines, nil
		}
		lines = append(lines, line)
	}
}

// explainEnd adds how the program ended, if it did.
func (d *instanceSession) explainEnd(err error) error {
	select {
	case ended := <-d.ended:
		err = errors.Join(err, ended)
	default:
	}
	return fmt.Errorf("cannot compare: instance %d: %w", d.ordinal, err)
}

func (d *instanceSession) close() { _ = d.in.Close() } // It always succeeds.
