// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/torpor-dev/torpor/internal/mysql/backup/mysqlshdump"
)

// maxFailures limits how many parts of a dump may fail. A server that refuses more is not a suitable target for the
// dump.
const maxFailures = 1000

// failedStatement is the exit code of the mysql client after a failed statement. The exit code of a killed client
// differs.
const failedStatement = 1

// loadDump decompresses and loads a dump. If schema is set, it loads only that schema.
func loadDump(ctx context.Context, host, password string, packed io.Reader, schema string) (*leftOutParts, error) {
	plain, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("decompress the dump: %w", err)
	}
	defer plain.Close()
	source := &readErrorRecorder{from: plain}
	dump, err := acceptInvalidDates(source)
	if err != nil {
		return nil, err
	}
	outline := &dumpOutline{from: dump}
	if schema != "" {
		outline.from = filterSchema(dump, schema)
	}
	return loadSQL(ctx, host, password, source, outline)
}

const (
	// modeOfDumps is the SQL mode that mysqldump sets. In this mode a date such as February 31, which the source
	// accepted with ALLOW_INVALID_DATES, would become zero without an error. acceptingMode preserves such dates.
	modeOfDumps   = " SQL_MODE='NO_AUTO_VALUE_ON_ZERO' "
	acceptingMode = " SQL_MODE='NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES' "
)

// acceptInvalidDates changes the SQL mode at the beginning of a dump.
func acceptInvalidDates(dump io.Reader) (io.Reader, error) {
	lines := bufio.NewReaderSize(dump, lineBuffer)
	head, err := readHead(lines)
	if err != nil {
		return nil, fmt.Errorf("read the dump: %w", err)
	}
	return io.MultiReader(bytes.NewReader(bytes.Replace(head, []byte(modeOfDumps), []byte(acceptingMode), 1)), lines), nil
}

// loadSQL loads a dump with the mysql client. If MySQL rejects a statement, the client continues with the next one, and
// loadSQL returns the skipped parts of the dump. If an error concerns more than one object, such as a full disk,
// loadSQL ends the client and returns the error. The client reads the dump from the outline, and the outline reads it
// from the source.
func loadSQL(ctx context.Context, host, password string, source *readErrorRecorder, outline *dumpOutline) (left *leftOutParts, err error) {
	options, err := writeOptionFile(host, RestoreUser, password)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, options.removeFolder()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outline.from = newShortenedKeys(outline.from)
	failures := &statementFailures{outline: outline, stop: cancel, seen: map[string]bool{}}
	cmd := clientCommand(ctx, "mysql", loadFlags(options, writingSession, "--force"))
	cmd.Stdin, cmd.Stderr = outline, failures
	err = cmd.Run()
	switch {
	case source.err != nil:
		return nil, fmt.Errorf("read the dump: %w", source.err)
	case failures.fatal != nil:
		return nil, failures.fatal
	case err != nil && (cmd.ProcessState.ExitCode() != failedStatement || len(failures.all) == 0):
		return nil, describeClientError(err, failures.other.String(), "the dump")
	}
	return failures.leftOut(), nil
}

// statementFailure is MySQL's error for a statement in a dump.
type statementFailure struct {
	number   int
	line     int
	sentence string
}

// String returns MySQL's error number and, if it cannot contain data, the error text.
func (f statementFailure) String() string {
	text := "MySQL's error " + strconv.Itoa(f.number)
	if f.sentence != "" {
		text += ": " + f.sentence
	}
	return text
}

// statementFailures parses the errors that the mysql client prints while it runs.
type statementFailures struct {
	outline *dumpOutline
	stop    func()

	all   []statementFailure
	seen  map[string]bool
	fatal error
	other bytes.Buffer // other holds the lines that do not concern a statement.
	rest  []byte
}

var failureLine = regexp.MustCompile(`^ERROR (\d+) \(\w+\) at line (\d+)(?: in file: '[^']*')?: (.*)$`)

// Write implements io.Writer.
func (f *statementFailures) Write(p []byte) (int, error) {
	f.rest = append(f.rest, p...)
	for {
		line, rest, isWhole := bytes.Cut(f.rest, []byte("\n"))
		if !isWhole {
			f.rest = f.rest[max(0, len(f.rest)-maxComplaint):] // A longer line contains data. Only its end is kept.
			return len(p), nil
		}
		f.rest = rest
		f.add(string(line))
	}
}

func (f *statementFailures) add(line string) {
	found := failureLine.FindStringSubmatch(line)
	if found == nil {
		if f.other.Len() < maxComplaint {
			f.other.WriteString(line + "\n")
		}
		return
	}
	number, _ := strconv.Atoi(found[1]) // The pattern matches only digits. A number that is out of range becomes the maximum.
	at, _ := strconv.Atoi(found[2])
	failure := statementFailure{number: number, line: at, sentence: serverSentence(number, found[3])}
	part, isSetting := f.outline.find(at)
	isServers := !isSetting && (part.kind == "" || part.kind == schemaPart) || isAboutTheServer(number)
	if f.fatal == nil && (isServers || len(f.all) >= maxFailures) {
		f.fatal = fmt.Errorf("expected the instance to accept the dump, found %s at line %d of the dump", failure, at)
		f.stop()
	}
	if isSetting || !f.seen[part.String()] { // Every INSERT into an omitted table fails.
		f.seen[part.String()] = true
		f.all = append(f.all, failure)
	}
}

// isAboutTheServer reports whether an error concerns the server, its disk or the connection, as opposed to a single
// statement.
func isAboutTheServer(number int) bool {
	const (
		firstClientError, lastClientError = 2000, 2999
		diskFull, engineFails, outOfMemory, outOfSortMemory, tooManyConnections, outOfResources, shutdown, diskIsFull,
		killed, lockWait, deadlock, noDatabase, forbiddenByOption, readOnly, offline = 1021, 1030, 1037, 1038, 1040, 1041,
			1053, 1114, 1317, 1205, 1213, 1046, 1290, 1836, 3032
	)
	return number >= firstClientError && number <= lastClientError || slices.Contains([]int{
		diskFull, engineFails, outOfMemory, outOfSortMemory, tooManyConnections, outOfResources, shutdown, diskIsFull,
		killed, lockWait, deadlock, noDatabase, forbiddenByOption, readOnly, offline,
	}, number)
}

// maxSentence limits the length of MySQL's error text in a message.
const maxSentence = 200

// serverSentence returns MySQL's error text without the part that may contain data or secrets.
func serverSentence(number int, text string) string {
	const syntax, dump, wrongValue, truncated, duplicate, invalidText = 1064, 1105, 1366, 1292, 1062, 1300
	if slices.Contains([]int{dump, wrongValue, truncated, duplicate, invalidText}, number) {
		return ""
	}
	if number == syntax {
		text, _, _ = strings.Cut(text, " near ") // The rest of the text contains the statement.
	}
	if len(text) > maxSentence {
		text = strings.ToValidUTF8(text[:maxSentence], "") + "…"
	}
	return text
}

// leftOutParts lists the parts of a backup that were not restored.
type leftOutParts struct {
	// texts describes each part with the reason. names holds the kinds and quoted names of the parts.
	texts []string
	names map[string]bool
	// views lists the views among the parts. Their reasons are not in texts.
	views []brokenView
	// drops are statements that remove objects that were created without one of their settings.
	drops []string
}

// add adds a part with its name, or with an empty name if the part is not an object of a schema.
func (l *leftOutParts) add(name, format string, args ...any) {
	l.texts = append(l.texts, fmt.Sprintf(format, args...))
	if name != "" {
		l.names[name] = true
	}
}

// takeViews adds the broken views that are in the dump, and returns the broken views that are not in it.
func (l *leftOutParts) takeViews(broken []brokenView) []brokenView {
	var others []brokenView
	for _, v := range broken {
		if v.reason == "" {
			others = append(others, v)
			continue
		}
		l.add("view "+v.quotedName(), "view %s.%s is not restored: %s", v.Schema, v.Name, v.reason)
	}
	return others
}

// summarize lists the first few parts.
func (l *leftOutParts) summarize() string {
	text := strings.Join(l.texts[:min(len(l.texts), maxNamed)], "; ")
	if n := len(l.texts) - maxNamed; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	return text
}

// leftOut returns the parts that failed, with the first failure of each object.
func (f *statementFailures) leftOut() *leftOutParts {
	left, seen := &leftOutParts{names: map[string]bool{}}, map[string]bool{}
	for _, failure := range f.all {
		part, wasMade := f.outline.find(failure.line)
		if seen[part.String()] || part.kind == rowsPart && seen[dumpPart{kind: tablePart, schema: part.schema, name: part.name}.String()] {
			continue
		}
		seen[part.String()] = true
		if part.kind == viewPart {
			left.names[part.key()] = true
			left.views = append(left.views, brokenView{Schema: part.schema, Name: part.name, reason: failure.String()})
			continue
		}
		if part.kind == rowsPart {
			failure.sentence = "" // The error text may contain data.
			left.add(part.key(), "%s are not restored, at least in part: %s", part, failure)
			continue
		}
		if wasMade {
			left.drops = append(left.drops, "drop "+part.displayKind()+" if exists "+mysqlshdump.QuoteName(part.schema)+"."+mysqlshdump.QuoteName(part.name))
		}
		left.add(part.key(), "%s is not restored: %s", part, failure)
	}
	return left
}

// readErrorRecorder records the error that ended a read, because exec.Cmd returns the program's error instead.
type readErrorRecorder struct {
	from io.Reader
	err  error
}

// Read implements io.Reader.
func (c *readErrorRecorder) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// filterSchema returns the dump without the sections of other schemas. The beginning of the dump, with the GTID set, is
// kept.
func filterSchema(from io.Reader, schema string) io.Reader {
	r, w := io.Pipe()
	go func() { w.CloseWithError(copySections(w, bufio.NewReaderSize(from, lineBuffer), schema)) }()
	return r
}

func copySections(to io.Writer, from *bufio.Reader, schema string) error {
	// A line that is longer than the buffer is read in pieces. Only the first piece can start a section.
	wanted, lineStart := true, true
	for {
		piece, err := from.ReadSlice('\n')
		if lineStart && bytes.HasPrefix(piece, []byte(schemaSection)) {
			name := strings.TrimSuffix(strings.TrimSpace(string(piece[len(schemaSection):])), "`")
			wanted = mysqlshdump.UnquoteName(name) == schema
		}
		lineStart = err == nil
		if wanted {
			if _, err := to.Write(piece); err != nil {
				return fmt.Errorf("copy the dump: %w", err)
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
