// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/torpor-dev/torpor/internal/mysql/backup/mysqlshdump"
)

// partKind is the kind of object that a part of a dump creates.
type partKind string

const (
	schemaPart  partKind = "schema"
	tablePart   partKind = "table"
	rowsPart    partKind = "rows of table"
	viewPart    partKind = "view"
	triggerPart partKind = "trigger"
	eventPart   partKind = "event"
	routinePart partKind = "routine"
	// settingPart is a setting for the trigger, event or routine that follows.
	settingPart partKind = "setting"
)

// dumpPart is a part of a dump. line is its first line.
type dumpPart struct {
	line   int
	kind   partKind
	verb   string // The verb of a routine is PROCEDURE or FUNCTION.
	schema string
	name   string
}

func (p dumpPart) String() string { return p.displayKind() + " " + p.schema + "." + p.name }

// key returns the kind and the quoted name of the object.
func (p dumpPart) key() string {
	kind := p.displayKind()
	if p.kind == rowsPart {
		kind = string(tablePart)
	}
	return kind + " " + mysqlshdump.QuoteName(p.schema) + "." + mysqlshdump.QuoteName(p.name)
}

func (p dumpPart) displayKind() string {
	if p.kind == routinePart {
		return strings.ToLower(p.verb)
	}
	return string(p.kind)
}

// maxLineHead is the number of bytes examined at the beginning of a line. It is sufficient for every name, account and
// keyword.
const maxLineHead = 1024

// dumpOutline passes a dump through, and records the object to which each line belongs.
type dumpOutline struct {
	from io.Reader
	// isShells is true for a dump by MySQL Shell. Such a dump has a comment in front of each trigger, event and
	// routine, because their statements may contain names in any form.
	isShells bool

	mu    sync.Mutex
	parts []dumpPart
	line  int
	head  []byte
	// isHeader is true if the previous line was "--". mysqldump writes such a line before and after its header
	// comments.
	isHeader bool
	schema   string
	// unclosed contains the lines since begin if they end within a name that contains a line feed. After a line feed in
	// a comment, mysqldump writes two dashes and a space.
	unclosed string
	begin    int
	// announced is the object in the last comment of MySQL Shell, until the object's statement is read.
	announced *dumpPart
}

// Read implements io.Reader.
func (d *dumpOutline) Read(p []byte) (int, error) {
	n, err := d.from.Read(p)
	d.mu.Lock()
	defer d.mu.Unlock()
	for rest := p[:n]; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		piece := rest
		if end >= 0 {
			piece = rest[:end]
		}
		d.head = append(d.head, piece[:min(len(piece), maxLineHead-len(d.head))]...)
		if end < 0 {
			break
		}
		d.endLine()
		rest = rest[end+1:]
	}
	return n, err
}

func (d *dumpOutline) endLine() {
	d.line++
	line := string(d.head)
	d.head = d.head[:0]
	if d.unclosed == "" {
		d.begin = d.line
	} else {
		if strings.HasPrefix(d.unclosed, "-- ") {
			line = strings.TrimPrefix(line, "-- ")
		}
		line = d.unclosed + "\n" + line
	}
	if d.unclosed = ""; len(line) < maxLineHead && (d.isHeader && unclosedHeader.MatchString(line) || unclosedCreate.MatchString(line)) {
		d.unclosed = line
		return
	}
	if part, ok := d.parse(line); ok {
		d.parts = append(d.parts, part)
	}
	d.isHeader = line == "--"
}

const (
	unclosedPattern = "`((?:[^`]|``)*)"
	quotedPattern   = unclosedPattern + "`"
	headerPattern   = `^-- (Current Database: |Table structure for table |Dumping data for table |Temporary view structure for view |Final view structure for view )`
	createPattern   = `^(?:/\*!\d+ )?CREATE(?:\*/)?(?: /\*!\d+)? DEFINER=` + quotedPattern + `@` + quotedPattern + `(?:\*/ /\*!\d+)? (TRIGGER|EVENT|PROCEDURE|FUNCTION) (?:IF NOT EXISTS )?`
)

var (
	headerLine = regexp.MustCompile(headerPattern + quotedPattern + `$`)
	// createLine matches the first line of a trigger, an event or a routine.
	createLine = regexp.MustCompile(createPattern + quotedPattern)
	// unclosedHeader and unclosedCreate match such lines if the name continues in the next line.
	unclosedHeader = regexp.MustCompile(headerPattern + unclosedPattern + `$`)
	unclosedCreate = regexp.MustCompile(createPattern + unclosedPattern + `$`)
)

// announcement matches the comment of MySQL Shell before an object, and createShells the first line of its statement.
var (
	announcement = regexp.MustCompile("^-- begin (trigger|event|procedure|function) (.*)$")
	createShells = regexp.MustCompile(`^(?:/\*!\d+ )?CREATE `)
)

// parseShells parses a line that only MySQL Shell writes.
func (d *dumpOutline) parseShells(line string) (dumpPart, bool) {
	if found := announcement.FindStringSubmatch(line); found != nil {
		name := strings.TrimPrefix(strings.TrimPrefix(found[2], mysqlshdump.QuoteName(d.schema)+"."), d.schema+".")
		if strings.HasPrefix(name, "`") {
			name = mysqlshdump.UnquoteName(strings.TrimSuffix(name[1:], "`"))
		}
		d.announced = new(newObjectPart(strings.ToUpper(found[1]), d.schema, name))
		return dumpPart{}, false
	}
	if d.announced == nil || !createShells.MatchString(line) {
		return dumpPart{}, false
	}
	part := *d.announced
	part.line, d.announced = d.line, nil
	return part, true
}

func newObjectPart(verb, schema, name string) dumpPart {
	part := dumpPart{kind: routinePart, verb: verb, schema: schema, name: name}
	switch verb {
	case "TRIGGER":
		part.kind = triggerPart
	case "EVENT":
		part.kind = eventPart
	}
	return part
}

func (d *dumpOutline) parse(line string) (dumpPart, bool) {
	if d.isShells {
		if part, ok := d.parseShells(line); ok {
			return part, true
		}
	}
	if d.isHeader {
		found := headerLine.FindStringSubmatch(line)
		if found == nil {
			return dumpPart{}, false
		}
		// The client may count the line before as the first line of the statement, because the comment begins there.
		part := dumpPart{line: d.begin - 1, schema: d.schema, name: mysqlshdump.UnquoteName(found[2])}
		switch found[1] {
		case "Current Database: ":
			part.kind, d.schema = schemaPart, part.name
		case "Table structure for table ":
			part.kind = tablePart
		case "Dumping data for table ":
			part.kind = rowsPart
		default:
			part.kind = viewPart
		}
		return part, true
	}
	if strings.HasPrefix(line, "/*!50003 SET ") {
		return dumpPart{line: d.line, kind: settingPart}, true
	}
	found := createLine.FindStringSubmatch(line)
	if found == nil {
		return dumpPart{}, false
	}
	part := newObjectPart(found[3], d.schema, mysqlshdump.UnquoteName(found[4]))
	part.line = d.begin
	return part, true
}

// find returns the part that a line belongs to. For a setting, isSetting is true, and part is the object that the
// setting is for. The object is created without the setting. part is empty until the object has been read.
func (d *dumpOutline) find(line int) (part dumpPart, isSetting bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next, _ := slices.BinarySearchFunc(d.parts, line, func(p dumpPart, line int) int {
		if p.line <= line {
			return -1
		}
		return 1
	})
	if next == 0 {
		return dumpPart{}, false
	}
	part = d.parts[next-1]
	if part.kind != settingPart {
		return part, false
	}
	for _, part = range d.parts[next:] {
		if part.kind != settingPart {
			return part, true
		}
	}
	return dumpPart{}, true
}
