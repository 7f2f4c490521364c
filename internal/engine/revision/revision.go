package revision

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/rand"
)

// maxNamePrefix is how many bytes of the owner's name a revision name keeps.
const maxNamePrefix = 223

// Data returns the data of the revision that stores the template, byte for byte as OpenKruise writes it
// (CS-080).
func Data(template []byte) ([]byte, error) {
	canonical, err := Canonical(template)
	if err != nil {
		return nil, err
	}
	canonical["$patch"] = "replace"
	data, err := json.Marshal(Document{"spec": Document{"template": canonical}})
	if err != nil {
		return nil, fmt.Errorf("encoding revision data: %w", err)
	}
	return data, nil
}

// Template returns the pod template stored in the data of a revision, unchanged.
func Template(data []byte) ([]byte, error) {
	var stored struct {
		Spec struct {
			Template json.RawMessage `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &stored); err != nil {
		return nil, fmt.Errorf("reading revision data: %w", err)
	}
	if len(stored.Spec.Template) == 0 {
		return nil, fmt.Errorf("revision data holds no spec.template")
	}
	return stored.Spec.Template, nil
}

// SameBeside reports whether the data of two revisions are equal apart from their templates (IPU-041).
func SameBeside(a, b []byte) bool {
	besideA, errA := beside(a)
	besideB, errB := beside(b)
	return errA == nil && errB == nil && reflect.DeepEqual(besideA, besideB)
}

func beside(data []byte) (Document, error) {
	doc, err := Parse(data)
	if err != nil {
		return nil, err
	}
	if spec, ok := doc["spec"].(Document); ok {
		delete(spec, "template")
	}
	return doc, nil
}

// Equal reports whether the data of two revisions contain the same template: their bytes are equal, or their
// canonical forms. The latter recognizes data written by another release or by OpenKruise (CS-085).
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	canonicalA, errA := canonicalData(a)
	canonicalB, errB := canonicalData(b)
	return errA == nil && errB == nil && bytes.Equal(canonicalA, canonicalB)
}

func canonicalData(data []byte) ([]byte, error) {
	template, err := Template(data)
	if err != nil {
		return nil, err
	}
	return Data(template)
}

// Hash returns the hash of a revision's data after the given number of name collisions (CS-081).
func Hash(data []byte, collisions int32) string {
	sum := fnv.New32()
	sum.Write(data)
	sum.Write(strconv.AppendInt(nil, int64(collisions), 10))
	return rand.SafeEncodeString(strconv.FormatUint(uint64(sum.Sum32()), 10))
}

// Name returns the name of the owner's revision with that hash (CS-081).
func Name(owner, hash string) string {
	if len(owner) > maxNamePrefix {
		owner = strings.TrimRight(owner[:maxNamePrefix], ".") // a dot before the dash would be invalid
	}
	return owner + "-" + hash
}

// ShortHash returns the part of a revision name after its last dash, or the whole name if it has no dash
// (CS-050).
func ShortHash(name string) string {
	return name[strings.LastIndexByte(name, '-')+1:]
}

// SameLabel reports whether two values of the revision label name the same revision, in either of the two
// forms (CS-051).
func SameLabel(a, b string) bool {
	short := ShortHash(a)
	return a == b || (short != "" && short == ShortHash(b))
}
