// SPDX-License-Identifier: Apache-2.0

package job

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// load feeds a dump to the client mysql. Of its complaints only MySQL's number and the line are told: the words may hold data.
func load(ctx context.Context, host, password string, packed io.Reader, schema string) (err error) {
	options, err := writeOptions(host, RestoreUser, password)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, options.remove()) }()
	plain, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("decompress the dump: %w", err)
	}
	defer plain.Close()
	source := &checked{from: plain}
	var complaints bytes.Buffer
	cmd := client(ctx, "mysql", []string{options.flag(), "--default-character-set=utf8mb4", "--max-allowed-packet=1G", "--batch"})
	cmd.Stdin, cmd.Stderr = source, &limited{to: &complaints, left: shown}
	if schema != "" {
		cmd.Stdin = onlySchema(source, schema)
	}
	if err := cmd.Run(); err != nil {
		if source.err != nil {
			return fmt.Errorf("read the dump: %w", source.err)
		}
		found := regexp.MustCompile(`ERROR (\d+).*? at line (\d+)`).FindStringSubmatch(complaints.String())
		if found == nil {
			return fmt.Errorf("mysql: %w", err)
		}
		return fmt.Errorf("mysql: %w: MySQL's error %s at line %s of the dump", err, found[1], found[2])
	}
	return nil
}

// checked remembers why it could not be read to its end.
type checked struct {
	from io.Reader
	err  error
}

// Read implements io.Reader.
func (c *checked) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// onlySchema leaves out the sections of all other schemas. What comes before the first, among it the GTID set, stays.
func onlySchema(from io.Reader, schema string) io.Reader {
	r, w := io.Pipe()
	go func() { w.CloseWithError(filter(w, bufio.NewReaderSize(from, lineBuffer), schema)) }()
	return r
}

func filter(to io.Writer, from *bufio.Reader, schema string) error {
	wanted, lineStart := true, true
	for {
		piece, err := from.ReadSlice('\n')
		if lineStart && bytes.HasPrefix(piece, []byte(section)) {
			name := strings.TrimSuffix(strings.TrimSpace(string(piece[len(section):])), "`")
			wanted = strings.ReplaceAll(name, "``", "`") == schema
		}
		lineStart = err == nil
		if wanted {
			if _, err := to.Write(piece); err != nil {
				return fmt.Errorf("pass on the dump: %w", err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read the dump: %w", err)
		}
	}
}
