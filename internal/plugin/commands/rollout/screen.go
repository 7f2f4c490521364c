package rollout

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"k8s.io/kubectl/pkg/util/term"

	"github.com/afloat-project/afloat/internal/plugin/terminal"
)

// barWidth is the width of the progress bar in characters.
const barWidth = 20

// screen shows the progress of a rollout. On a terminal it repaints the progress with a bar each time.
// Elsewhere it writes only new lines.
type screen struct {
	out io.Writer
	// width returns the number of characters in a line of the terminal. It is nil if there is no terminal.
	width func() int
	// rows is the number of terminal lines that were painted.
	rows        int
	line, below string
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	if tty := (term.TTY{Out: out}); tty.IsTerminalOut() {
		s.width = func() int {
			if size := tty.GetSize(); size != nil {
				return int(size.Width)
			}
			return 0
		}
	}
	return s
}

// show shows the progress, and further lines below it.
func (s *screen) show(p Progress, below string) {
	p.Line, below = terminal.Lines(p.Line), terminal.Lines(below)
	if p.Line == s.line && below == s.below {
		return
	}

	if s.width == nil {
		if p.Line != s.line {
			fmt.Fprintln(s.out, p.Line)
		}
		if below != s.below && below != "" {
			fmt.Fprintln(s.out, indented(below))
		}
		s.line, s.below = p.Line, below
		return
	}

	text := bar(p) + p.Line + "\n"
	if below != "" {
		text += indented(below) + "\n"
	}

	if s.rows > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.rows) // move the cursor up, and erase everything below it
	}

	fmt.Fprint(s.out, text)
	s.line, s.below, s.rows = p.Line, below, rows(text, s.width())
}

// rows returns the number of lines that the text takes on a terminal.
func rows(text string, width int) int {
	count := 0
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		count++
		if width > 0 {
			count += max(utf8.RuneCountInString(line)-1, 0) / width
		}
	}
	return count
}

func bar(p Progress) string {
	if p.Target <= 0 {
		return ""
	}

	filled := min(max(p.Updated, 0), p.Target) * barWidth / p.Target
	return fmt.Sprintf("[%s%s] %d/%d ",
		strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), p.Updated, p.Target)
}

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}
