package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

func decode[T any](t interface{ Fatalf(string, ...any) }, text string) T {
	var value T
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("unmarshal %s: %v", text, err)
	}
	return value
}

func encode(t interface{ Fatalf(string, ...any) }, value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	return string(data)
}

// anyJSON draws JSON values with large and fractional numbers, empty containers and nulls.
func anyJSON(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.StringMatching(`[a-zA-Z0-9<>&"é]{0,8}`), func(s string) any { return s }),
		rapid.Map(rapid.Uint64(), func(n uint64) any { return json.Number(fmt.Sprint(n)) }),
		rapid.SampledFrom([]any{json.Number("1.10"), json.Number("1e3"), json.Number("123456789012345678901234567890")}),
	)
	if depth == 0 {
		return leaf
	}
	key := rapid.SampledFrom([]string{"name", "image", "spec", "metadata", "newField", "env", "x", "labels", "containers"})
	return rapid.OneOf(
		leaf,
		rapid.Map(rapid.SliceOfN(anyJSON(depth-1), 0, 3), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(key, anyJSON(depth-1), 0, 4), func(m map[string]any) any { return m }),
	)
}

// podDocument draws templates that fit the types, with unknown fields in many places.
func podDocument() *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		extra := func(object map[string]any, label string) map[string]any {
			if rapid.Bool().Draw(t, label) {
				object["futureField"] = anyJSON(2).Draw(t, label+" value")
			}
			return object
		}
		var containers []any
		for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
			var env []any
			for range rapid.IntRange(0, 3).Draw(t, "env") {
				env = append(env, extra(map[string]any{"name": rapid.SampledFrom([]string{"A", "B"}).Draw(t, "env name"), "value": "v"},
					"env extra"))
			}
			container := map[string]any{"name": fmt.Sprintf("c%d", i), "image": "nginx:1", "resources": map[string]any{
				"limits": map[string]any{"cpu": "0.5", "memory": json.Number("1073741824")}}}
			if env != nil {
				container["env"] = env
			}
			container["ports"] = []any{
				extra(map[string]any{"containerPort": json.Number("53"), "protocol": "UDP"}, "port extra"),
				map[string]any{"containerPort": json.Number("53"), "protocol": "TCP"},
			}
			containers = append(containers, extra(container, "container extra"))
		}
		volume := extra(map[string]any{"name": "data", "emptyDir": map[string]any{"futureDir": json.Number("9007199254740993")}},
			"volume extra")
		return extra(map[string]any{
			"metadata": extra(map[string]any{"labels": map[string]any{"app": "shop"}, "creationTimestamp": nil}, "metadata extra"),
			"spec":     extra(map[string]any{"containers": containers, "volumes": []any{volume}}, "spec extra"),
		}, "template extra")
	})
}

func assertSameJSON(t interface {
	Fatalf(string, ...any)
}, got, want string) {
	if !equalJSON([]byte(got), []byte(want)) {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// CS-016: everything that a user wrote into the schemaless field is kept, numbers digit by digit.
func TestAnyDocumentSurvivesDecodingAndEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(rapid.SampledFrom([]string{"metadata", "spec", "status", "x"}), anyJSON(4), 0, 4).Draw(t, "object")
		text := encode(t, object)
		assertSameJSON(t, encode(t, decode[PodTemplate](t, text)), text)
		assertSameJSON(t, encode(t, decode[VolumeClaimTemplate](t, text)), text)
		assertSameJSON(t, encode(t, decode[VolumeClaimTemplates](t, text)), text)

		list := encode(t, rapid.SliceOfN(anyJSON(3), 1, 3).Draw(t, "list"))
		assertSameJSON(t, encode(t, decode[VolumeClaimTemplates](t, list)), list)
	})
}

func TestTypedDocumentSurvivesDecodingAndEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := encode(t, podDocument().Draw(t, "template"))
		template := decode[PodTemplate](t, text)
		if err := template.DecodeError(); err != nil {
			t.Fatalf("decode error: %v", err)
		}
		assertSameJSON(t, encode(t, template), text)
		assertSameJSON(t, encode(t, template.DeepCopy()), text)
	})
}

// A change of the typed view shows in the document, and nothing else does.
func TestTypedChangeKeepsUnknownFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document := podDocument().Draw(t, "template")
		template := decode[PodTemplate](t, encode(t, document))
		spec := document["spec"].(map[string]any)
		containers := spec["containers"].([]any)
		i := rapid.IntRange(0, len(containers)-1).Draw(t, "container")
		container := containers[i].(map[string]any)

		if rapid.Bool().Draw(t, "image") {
			template.Spec.Containers[i].Image = "nginx:2"
			container["image"] = "nginx:2"
		}
		if rapid.Bool().Draw(t, "host network") {
			template.Spec.HostNetwork = true
			spec["hostNetwork"] = true
		}
		if rapid.Bool().Draw(t, "labels") {
			template.Labels = map[string]string{"tier": "web"}
			document["metadata"].(map[string]any)["labels"] = map[string]any{"tier": "web"}
		}
		if rapid.Bool().Draw(t, "new container in front") {
			template.Spec.Containers = append([]corev1.Container{{Name: "new", Image: "busybox"}}, template.Spec.Containers...)
			spec["containers"] = append([]any{map[string]any{"name": "new", "image": "busybox", "resources": map[string]any{}}},
				containers...)
		}
		if rapid.Bool().Draw(t, "no volumes") {
			template.Spec.Volumes = nil
			delete(spec, "volumes")
		}
		assertSameJSON(t, encode(t, template), encode(t, document))
	})
}

func TestTypedChangeOfRepeatedKeys(t *testing.T) {
	cases := map[string]struct {
		document, want string
		change         func(*PodTemplate)
	}{
		"one port number for two protocols, second changed": {
			document: `{"spec":{"containers":[{"name":"dns","resources":{},"ports":[{"containerPort":53,"protocol":"UDP","future":1},{"containerPort":53,"protocol":"TCP","future":2}]}]}}`,
			change:   func(t *PodTemplate) { t.Spec.Containers[0].Ports[1].HostPort = 53 },
			want:     `{"spec":{"containers":[{"name":"dns","resources":{},"ports":[{"containerPort":53,"protocol":"UDP","future":1},{"containerPort":53,"hostPort":53,"protocol":"TCP","future":2}]}]}}`,
		},
		"variable twice, first removed": {
			document: `{"spec":{"containers":[{"name":"a","env":[{"name":"X","value":"1","future":1},{"name":"X","value":"2","future":2}]}]}}`,
			change: func(t *PodTemplate) {
				t.Spec.Containers[0].Env = t.Spec.Containers[0].Env[1:]
			},
			want: `{"spec":{"containers":[{"name":"a","env":[{"name":"X","value":"2","future":2}]}]}}`,
		},
		"containers swapped": {
			document: `{"spec":{"containers":[{"name":"a","future":1},{"name":"b","future":2}]}}`,
			change: func(t *PodTemplate) {
				c := t.Spec.Containers
				c[0], c[1] = c[1], c[0]
			},
			want: `{"spec":{"containers":[{"name":"b","future":2},{"name":"a","future":1}]}}`,
		},
		"container replaced takes nothing over": {
			document: `{"spec":{"containers":[{"name":"a","future":1}]}}`,
			change:   func(t *PodTemplate) { t.Spec.Containers[0] = corev1.Container{Name: "b"} },
			want:     `{"spec":{"containers":[{"name":"b","resources":{}}]}}`,
		},
		"large numbers beside a change": {
			document: `{"spec":{"containers":[{"name":"a","future":18446744073709551615}],"future":1.50}}`,
			change:   func(t *PodTemplate) { t.Spec.Containers[0].Image = "x" },
			want:     `{"spec":{"containers":[{"name":"a","image":"x","future":18446744073709551615}],"future":1.50}}`,
		},
		"explicit null and empty kept": {
			document: `{"metadata":{"creationTimestamp":null,"labels":{}},"spec":{"containers":[{"name":"a","env":[]}],"nodeSelector":null}}`,
			change:   func(t *PodTemplate) { t.Spec.HostPID = true },
			want:     `{"metadata":{"creationTimestamp":null,"labels":{}},"spec":{"containers":[{"name":"a","env":[]}],"nodeSelector":null,"hostPID":true}}`,
		},
		"written into a document that did not decode": {
			document: `{"spec":{"containers":"none","future":1}}`,
			change:   func(t *PodTemplate) { t.Labels = map[string]string{"a": "b"} },
			want:     `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":"none","future":1}}`,
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			template := decode[PodTemplate](t, test.document)
			test.change(&template)
			assertSameJSON(t, encode(t, template), test.want)
			if diff := cmp.Diff(test.document, string(template.Raw())); diff != "" {
				t.Errorf("Raw is not the document as read (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUndecodableDocumentIsReportedNotFatal(t *testing.T) {
	for name, text := range map[string]string{
		"string": `"x"`, "number": `5`, "list": `[1]`, "wrong type inside": `{"spec":{"containers":{"a":1}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			list := decode[[]PodTemplate](t, `[`+text+`,{"spec":{"containers":[{"name":"a"}]}}]`)
			if list[0].DecodeError() == nil {
				t.Error("no DecodeError for a document that does not fit")
			}
			if list[1].DecodeError() != nil || list[1].Spec.Containers[0].Name != "a" {
				t.Errorf("good neighbour was not decoded: %v", list[1].DecodeError())
			}
			assertSameJSON(t, encode(t, list[0]), text)
		})
	}
	claims := decode[VolumeClaimTemplates](t, `{"metadata":{"name":"x"}}`)
	if !errors.Is(claims.DecodeError(), ErrNotAList) {
		t.Errorf("claims that are no list: %v", claims.DecodeError())
	}
	claims = append(claims, VolumeClaimTemplate{})
	if _, err := json.Marshal(claims); err != nil {
		t.Errorf("encoding: %v", err)
	}
}

func TestMadeInGo(t *testing.T) {
	var none PodTemplate
	if !none.IsZero() {
		t.Error("the zero template is not zero")
	}
	made := FromPodTemplateSpec(corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}})
	if made.IsZero() {
		t.Error("a template with a container is zero")
	}
	read := decode[PodTemplate](t, `{"spec": {"containers": [{"resources": {}, "name": "a"}]}}`)
	made2 := decode[PodTemplate](t, encode(t, made))
	if !made.Equal(made2) {
		t.Errorf("%s is not %s", encode(t, made), encode(t, made2))
	}
	if diff := cmp.Diff(made2.Spec, read.Spec); diff != "" {
		t.Error(diff)
	}
	changed := read.DeepCopy()
	changed.Spec.Containers[0].Image = "x"
	if read.Spec.Containers[0].Image != "" || read.Equal(*changed) {
		t.Error("the copy shares the view")
	}
}
