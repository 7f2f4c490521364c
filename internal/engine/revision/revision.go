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

// maxNamePrefix is how much of the owner's name a revision name keeps.
const maxNamePrefix = 223

// Data returns the data of the revision that stores the template, byte for byte as the reference writes it
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

// Template returns the pod template stored in the data of a revision, as written.
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

// SameBeside reports whether two revision data are equal apart from their templates (IPU-041).
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

// Equal reports whether two revision data hold the same template: by their bytes, or else by their canonical
// forms, so that data written by another release or by the reference are recognised (CS-085).
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

// Hash returns the hash of revision data after the given number of name collisions (CS-081).
func Hash(data []byte, collisions int32) string {
	sum := fnv.New32()
	sum.Write(data)
	sum.Write(strconv.AppendInt(nil, int64(collisions), 10))
	return rand.SafeEncodeString(strconv.FormatUint(uint64(sum.Sum32()), 10))
}

// Name returns the name of the owner's revision with that hash (CS-081).
func Name(owner, hash string) string {
	if len(owner) > maxNamePrefix {
		owner = strings.TrimRight(owner[:maxNamePrefix], ".") // else it could not be a name
	}
	return owner + "-" + hash
}

// ShortHash returns what follows the last dash of a revision name, or the whole of a name without dash
// (CS-050).
func ShortHash(name string) string {
	return name[strings.LastIndexByte(name, '-')+1:]
}

// SameLabel reports whether two values of the revision label name the same revision, in whichever of the two
// styles (CS-051).
func SameLabel(a, b string) bool {
	short := ShortHash(a)
	return a == b || (short != "" && short == ShortHash(b))
}
