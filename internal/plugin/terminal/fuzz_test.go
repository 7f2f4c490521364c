package terminal

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/fuzzing"
)

// FuzzPlain: nothing that is printed steers the terminal, a line stays a line, and an escaped document says
// the same as before.
func FuzzPlain(f *testing.F) {
	f.Add(hostile)
	f.Add(`{"a":"\u202e` + "\u202e" + `b","c":[1]}`)
	f.Fuzz(func(t *testing.T, text string) {
		plain, lines, escaped := Plain(text), Lines(text), Escaped(text)
		if strings.ContainsFunc(plain, steers) || Plain(plain) != plain {
			t.Errorf("%q is printed as %q", text, plain)
		}
		if strings.ContainsFunc(lines, func(r rune) bool { return r != '\n' && r != '\t' && steers(r) }) ||
			Lines(lines) != lines ||
			strings.Count(lines, "\n") != strings.Count(text, "\n") {
			t.Errorf("%q is printed as the lines %q", text, lines)
		}
		if strings.ContainsFunc(escaped, func(r rune) bool { return r != '\n' && steers(r) }) {
			t.Errorf("%q is escaped as %q", text, escaped)
		}
		if json.Valid([]byte(text)) && !strings.Contains(text, "\t") && !strings.Contains(text, "\r") &&
			fuzzing.JSON(fuzzing.Value(text)) != fuzzing.JSON(fuzzing.Value(escaped)) {
			t.Errorf("%q is escaped as %q, which says something else", text, escaped)
		}
	})
}

// FuzzClean: no text in a cleaned pod steers the terminal, and a second time changes nothing.
func FuzzClean(f *testing.F) {
	f.Add([]byte("a pod"), hostile)
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		pod := fuzzing.Fill[corev1.Pod](data)
		pod.Status.Message, pod.Name = text, text
		pod.Annotations = map[string]string{text: text, "a": text}
		pod.Status.Conditions = []corev1.PodCondition{{Reason: text, Message: text}}
		pod.Finalizers = []string{text}
		Clean(pod)
		for _, got := range []string{pod.Status.Message, pod.Name, pod.Status.Conditions[0].Message,
			pod.Finalizers[0]} {
			if strings.ContainsFunc(got, steers) {
				t.Errorf("%q is printed as %q", text, got)
			}
		}
		for key, value := range pod.Annotations {
			if strings.ContainsFunc(key+value, steers) {
				t.Errorf("an annotation is printed as %q: %q", key, value)
			}
		}
		before := fuzzing.JSON(pod)
		if Clean(pod); fuzzing.JSON(pod) != before {
			t.Errorf("%s became %s", before, fuzzing.JSON(pod))
		}
	})
}
