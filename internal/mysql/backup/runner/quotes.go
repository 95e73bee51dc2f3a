// SPDX-License-Identifier: Apache-2.0

package runner

// quoteScanner finds the bytes of a dump's statements that are outside of quotes. The text may come in pieces.
type quoteScanner struct {
	// quote is the open quote. It is zero outside of quotes.
	quote     byte
	isEscaped bool
}

// isOutside reports whether the next byte is outside of quotes, and is not a quote itself.
func (q *quoteScanner) isOutside(b byte) bool {
	switch {
	case q.isEscaped:
		q.isEscaped = false
	case q.quote == '\'' && b == '\\':
		q.isEscaped = true
	case q.quote != 0:
		if b == q.quote { // A doubled quote ends the text and begins it again.
			q.quote = 0
		}
	case b == '\'' || b == '`':
		q.quote = b
	default:
		return true
	}
	return false
}
