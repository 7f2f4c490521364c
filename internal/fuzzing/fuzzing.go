// Package fuzzing is what fuzz targets share: Kubernetes objects and JSON documents that come from the
// bytes that the fuzzer chooses. The same bytes always give the same object, so that a finding can be
// played again. Nothing that is shipped links it.
package fuzzing

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/afloat-project/afloat/api/template"
)

// Choices are decisions that the bytes of the fuzzer make one after the other. When the bytes are used up,
// every decision is the first one.
type Choices []byte

// Next returns a number from 0 up to, and without, n.
func (c *Choices) Next(n int) int {
	if len(*c) == 0 || n <= 1 {
		return 0
	}
	chosen := int((*c)[0]) % n
	*c = (*c)[1:]
	return chosen
}

// Text returns up to 15 of the next bytes as a text, which may be invalid UTF-8.
func (c *Choices) Text() string {
	length := min(c.Next(16), len(*c))
	text := string((*c)[:length])
	*c = (*c)[length:]
	return text
}

// Pick returns one of the values.
func Pick[T any](c *Choices, values ...T) T { return values[c.Next(len(values))] }

// awkward are values that decoders often get wrong.
var awkward = []string{
	`null`, `""`, `{}`, `[]`, `0`, `1`, `-1`, `2`, `100`, `2147483647`, `2147483648`, `-2147483649`,
	`9223372036854775808`, `12345678901234567890`, `1e400`, `1.5`, `1.0`, `true`, `false`, `"0"`, `"-1"`, `"50%"`,
	`"101%"`, `"-5%"`, `"%"`, `"007"`, `"9999999999"`, `"a/b"`, `"/"`, `"~1"`, `"*"`, `"\u0000"`, `"é\n"`,
	`"true"`, `"null"`, `"{}"`, `"[]"`, `"2026-01-02T03:04:05Z"`, `"1Gi"`, `"1e3"`, `"-1n"`, `[null]`, `[""]`, `[{}]`,
	`{"":""}`, `{"a":null}`, `[[]]`, `"apps.kruise.io/v1beta1"`, `"app"`, `"web"`,
	`{"matchLabels":{"app":"web"}}`, `{"matchExpressions":[{"key":"app","operator":"In","values":["web"]}]}`,
	`{"matchExpressions":[{"key":"/","operator":"x","values":null}]}`,
}

// mostChanges is how many changes Edit makes. More of them make objects that nothing accepts.
const mostChanges = 6

// Edit returns a JSON object with changes that the bytes describe: members and elements are replaced,
// removed, doubled, renamed and copied from elsewhere. A document that is no object is returned as it is,
// so that what is tested gets it, too. Names are members that the changes may add.
func Edit(document string, changes []byte, names ...string) string {
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil || object == nil || decoder.More() {
		return document
	}
	choices := Choices(changes)
	var all []any
	collect(object, &all)
	for range mostChanges {
		if len(choices) == 0 {
			break
		}
		change(object, &choices, all, names)
	}
	return JSON(object)
}

// collect lists all values below a value.
func collect(value any, into *[]any) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			*into = append(*into, value[key])
			collect(value[key], into)
		}
	case []any:
		for _, item := range value {
			*into = append(*into, item)
			collect(item, into)
		}
	}
}

// change makes one change somewhere in an object, which is not empty at every step on the way there.
func change(at map[string]any, c *Choices, all []any, names []string) {
	for {
		keys := slices.Sorted(maps.Keys(at))
		if len(keys) == 0 {
			at[name(c, names)] = other(c, all)
			return
		}
		key := keys[c.Next(len(keys))]
		switch inner := at[key].(type) {
		case map[string]any:
			if c.Next(8) > 0 {
				at = inner
				continue
			}
		case []any:
			if len(inner) > 0 && c.Next(8) > 0 {
				i := c.Next(len(inner))
				if item, ok := inner[i].(map[string]any); ok && c.Next(8) > 0 {
					at = item
					continue
				}
				inner = slices.Clone(inner)
				switch c.Next(4) {
				case 0:
					inner = slices.Delete(inner, i, i+1)
				case 1:
					inner = append(inner, Copy(inner[i]))
				case 2:
					inner[i] = other(c, all)
				case 3:
					inner = slices.Insert(inner, i, other(c, all))
				}
				at[key] = inner
				return
			}
		}
		switch c.Next(6) {
		case 0:
			delete(at, key)
		case 1:
			at[name(c, names)] = other(c, all)
		case 2:
			at[name(c, names)] = Copy(at[key])
		default:
			at[key] = other(c, all)
		}
		return
	}
}

// name returns the name of a member.
func name(c *Choices, names []string) string {
	if len(names) > 0 && c.Next(4) > 0 {
		return Pick(c, names...)
	}
	return c.Text()
}

// other returns a value for a member or an element.
func other(c *Choices, all []any) any {
	switch c.Next(4) {
	case 0:
		return c.Text()
	case 1:
		if len(all) > 0 {
			return Copy(Pick(c, all...))
		}
	}
	return Value(Pick(c, awkward...))
}

// Value returns the value of a JSON text, in which numbers keep their form.
func Value(text string) (value any) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil
	}
	return value
}

// Copy returns a copy of a JSON value that shares nothing with it.
func Copy(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(value))
		for key, item := range value {
			copied[key] = Copy(item)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for i, item := range value {
			copied[i] = Copy(item)
		}
		return copied
	}
	return value
}

// JSON returns a value as JSON.
func JSON(value any) string {
	text := bytes.Buffer{}
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // what targets encode was read from JSON, or is an object of Kubernetes
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// Fill makes an object from bytes. Custom are functions as randfill takes them, which win against those of
// this package.
func Fill[T any](data []byte, custom ...any) *T {
	object := new(T)
	randfill.NewFromGoFuzz(data).NilChance(0.3).NumElements(0, 3).MaxDepth(12).
		Funcs(append(fills(), custom...)...).Fill(object)
	return object
}

// texts are values of strings in objects of Kubernetes.
var texts = []string{"", "a", "web", "app", "shop", "app.kubernetes.io/name", "a/b", "50%", "-1", "é",
	"RollingUpdate", "In"}

func fills() []any {
	pick := func(c randfill.Continue, values []string) string { return values[c.Intn(len(values))] }
	return []any{
		func(s *string, c randfill.Continue) {
			if *s = pick(c, texts); c.Intn(4) == 0 {
				*s = strings.ToValidUTF8(c.String(8), "?")
			}
		},
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(int64(c.Uint32()), 0).Rfc3339Copy() },
		func(t *metav1.MicroTime, c randfill.Continue) {
			*t = metav1.NewMicroTime(time.Unix(int64(c.Uint32()), 0).UTC())
		},
		func(d *metav1.Duration, c randfill.Continue) { d.Duration = time.Duration(c.Int31()) * time.Second },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(int64(c.Int31()), resource.DecimalSI)
		},
		func(v *intstr.IntOrString, c randfill.Continue) {
			*v = intstr.Parse(pick(c, []string{"0", "1", "5", "-1", "30%", "101%", "x", ""}))
		},
		func(r *runtime.RawExtension, c randfill.Continue) {
			r.Raw = []byte(pick(c, []string{`{}`, `{"metadata":{"labels":{"a":"b"}}}`, `{"spec":{"containers":[]}}`, `[]`, `5`}))
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString(`{}`) },
		func(t *template.PodTemplate, c randfill.Continue) {
			*t = template.PodTemplate{}
			_ = t.UnmarshalJSON([]byte(pick(c, []string{`null`, `{"spec":{"containers":[{"name":"app","future":1.50}]}}`,
				`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"i"}]}}`, `"broken"`})))
		},
		func(t *template.VolumeClaimTemplates, c randfill.Continue) {
			*t = nil
			_ = t.UnmarshalJSON([]byte(pick(c, []string{`null`, `[{"metadata":{"name":"d"},"future":{"a":1.0}}]`, `{"no":"list"}`})))
		},
		func(t *template.EphemeralContainers, c randfill.Continue) {
			*t = template.EphemeralContainers{}
			_ = t.UnmarshalJSON([]byte(pick(c, []string{`null`, `[{"name":"debug","image":"debug:1"}]`, `{"no":"list"}`})))
		},
	}
}
