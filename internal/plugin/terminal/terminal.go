// Package terminal removes control characters and escape sequences from the content of objects before it is
// printed. Otherwise, anybody who may write a message, an annotation or a status could control the user's
// terminal, for example to hide lines.
package terminal

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode"
)

// Plain returns a text as one line, in which characters that control terminals are replaced.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case steers(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Lines returns a text of several lines, in which characters that control terminals are replaced. Tabs stay.
func Lines(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && steers(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Escaped returns a JSON document in which characters that control terminals are escaped.
func Escaped(document string) string {
	var text strings.Builder
	for _, r := range document {
		if r != '\n' && steers(r) {
			fmt.Fprintf(&text, "\\u%04x", r)
		} else {
			text.WriteRune(r)
		}
	}
	return text.String()
}

// steers reports whether a character controls a terminal: control characters, and those that change the
// direction of writing.
func steers(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// Writer returns a writer that passes on what is written to it, like [Lines]. A character must not be split
// between two writes.
func Writer(to io.Writer) io.Writer { return writer{to} }

type writer struct{ to io.Writer }

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.to, Lines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Clean applies [Plain] to all strings that a value points to, in exported fields, lists and maps.
func Clean(pointer any) { clean(reflect.ValueOf(pointer)) }

func clean(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			clean(value.Elem())
		}
	case reflect.Struct:
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				clean(value.Field(i))
			}
		}
	case reflect.Slice:
		for i := range value.Len() {
			clean(value.Index(i))
		}
	case reflect.Map:
		cleanMap(value)
	case reflect.String:
		if value.CanSet() {
			value.SetString(Plain(value.String()))
		}
	}
}

func cleanMap(value reflect.Value) {
	if value.Type().Key().Kind() != reflect.String || value.Type().Elem().Kind() != reflect.String {
		return
	}
	for _, key := range value.MapKeys() {
		text := reflect.ValueOf(Plain(value.MapIndex(key).String())).Convert(value.Type().Elem())
		value.SetMapIndex(key, reflect.Value{})
		value.SetMapIndex(reflect.ValueOf(Plain(key.String())).Convert(value.Type().Key()), text)
	}
}
