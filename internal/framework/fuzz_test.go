package framework

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/fuzzing"
)

const fuzzedObject = `{"metadata":{"name":"web","labels":{"a/b":"c~d"}},"spec":{"replicas":12345678901234567890,"template":{"spec":{"containers":[{"name":"a","future":{"x":1.50}}]}},"future":[1,null,{}]}}`

// FuzzPatchBetween: the changes between two objects apply to the first and make the second; between equal
// objects there are none.
func FuzzPatchBetween(f *testing.F) {
	f.Add(fuzzedObject, []byte("\x01\x00\x02\x01\x03"), []byte("other"))
	f.Add(`{"a":null,"b":{"c":{"d":{"e":{"f":1}}}}}`, []byte("changes"), []byte("that are deep"))
	f.Fuzz(func(t *testing.T, document string, one, two []byte) {
		before, after := fuzzing.Edit(document, one, "/", "~1", "", "a"), fuzzing.Edit(document, two, "/", "~1",
			"", "a")
		if strings.Contains(before+after, `"":`) { // the library that applies patches cannot go into a member without a name
			return
		}
		operations, err := PatchBetween([]byte(before), []byte(after))
		if err != nil || fuzzing.Value(before) == nil || fuzzing.Value(after) == nil {
			return
		}
		text, err := json.Marshal(operations)
		if err != nil {
			t.Fatalf("the patch from %s to %s cannot be written: %v", before, after, err)
		}
		made := []byte(before)
		if len(operations) > 0 {
			patch, err := jsonpatch.DecodePatch(text)
			if err != nil {
				t.Fatalf("%s is no patch: %v", text, err)
			}
			if made, err = patch.Apply(made); err != nil {
				t.Fatalf("%s does not apply to %s: %v", text, before, err)
			}
		}
		got, _ := DecodeDocument(made)
		want, _ := DecodeDocument([]byte(after))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s turns %s\ninto %s,\nwant %s", text, before, made, after)
		}
	})
}

// FuzzCarry: an object that its type writes anew gets its unknown fields back at their places and loses
// nothing that it has.
func FuzzCarry(f *testing.F) {
	f.Add(fuzzedObject, []byte{})
	f.Add(`{"spec":{"updateStrategy":{"rollingUpdate":{"future":{"a":[1]}}},"volumeClaimTemplates":{"no":"list"}}}`, []byte("changes of these"))
	f.Fuzz(func(t *testing.T, document string, changes []byte) {
		document = fuzzing.Edit(document, changes, "future", "spec", "status", "updateStrategy", "lifecycle")
		object := &appsv1beta1.CloneSet{}
		if _, err := Decode([]byte(document), object); err != nil {
			return
		}
		written, err := json.Marshal(object)
		if err != nil {
			t.Fatalf("%s cannot be written: %v", document, err)
		}
		carried, err := Carry([]byte(document), written, reflect.TypeFor[appsv1beta1.CloneSet](), nil)
		if err != nil {
			t.Fatalf("carrying the fields of %s: %v", document, err)
		}
		again := &appsv1beta1.CloneSet{}
		if _, err := Decode(carried, again); err != nil ||
			!reflect.DeepEqual(fuzzing.Value(fuzzing.JSON(again)), fuzzing.Value(fuzzing.JSON(object))) {
			t.Errorf("%s is carried as %s, whose known fields are others, %v", document, carried, err)
		}
		twice, err := Carry([]byte(document), carried, reflect.TypeFor[appsv1beta1.CloneSet](), nil)
		if err != nil || !reflect.DeepEqual(fuzzing.Value(string(twice)), fuzzing.Value(string(carried))) {
			t.Errorf("%s is carried as %s, and once more as %s, %v", document, carried, twice, err)
		}
	})
}
