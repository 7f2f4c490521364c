package rollout

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"k8s.io/kubectl/pkg/util/term"

	"github.com/afloat-project/afloat/internal/plugin/terminal"
)

// barWidth is how many characters a progress bar has.
const barWidth = 20

// screen shows how far a rollout is. On a terminal it paints it anew each time, with a bar; elsewhere it
// writes lines, and only what is new.
type screen struct {
	out io.Writer
	// width is how many characters a line of the terminal has; nil means that it is none.
	width func() int
	// rows is how many lines were painted.
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

// show shows the progress, and lines below it.
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
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.rows) // up, and erase what is below
	}
	fmt.Fprint(s.out, text)
	s.line, s.below, s.rows = p.Line, below, rows(text, s.width())
}

// rows is how many lines of a terminal the text takes.
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
	return fmt.Sprintf("[%s%s] %d/%d ", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), p.Updated, p.Target)
}

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}
