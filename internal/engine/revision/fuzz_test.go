package revision

import (
	"testing"

	"github.com/afloat-project/afloat/internal/fuzzing"
)

// FuzzData: what a revision stores of a template gives back the canonical template, and storing that again
// gives the same data and the same hash; the order of members and white space make no difference.
func FuzzData(f *testing.F) {
	for _, text := range []string{
		`{"metadata":{"labels":{"app":"web"},"creationTimestamp":null},"spec":{"containers":[{"name":"app","image":"i","future":12345678901234567890}]}}`,
		`{"$patch":"replace","spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1000m"}}}],"x":1.50}}`, `{}`, `null`, `[]`, `{"spec":null}`} {
		f.Add(text, []byte{})
		f.Add(text, []byte("\x01\x00\x02\x03\x01"))
	}
	f.Fuzz(func(t *testing.T, text string, changes []byte) {
		text = fuzzing.Edit(text, changes, "future", "name", "spec", "containers", "image", "$patch", "resources")
		data, err := Data([]byte(text))
		if err != nil {
			return
		}
		template, err := Template(data)
		if err != nil {
			t.Fatalf("%s is stored as %s, which cannot be read: %v", text, data, err)
		}
		again, err := Data(template)
		if err != nil || string(again) != string(data) || !Equal(again, data) || Hash(again, 0) != Hash(data, 0) {
			t.Errorf("%s is stored as %s, and what is read from that as %s, %v", text, data, again, err)
		}
		// Encoding sorts the members.
		sorted, err := Data([]byte(fuzzing.JSON(fuzzing.Value(text))))
		if err != nil || !Equal(sorted, data) {
			t.Errorf("%s is stored as %s, and with its members in another order as %s, %v", text, data, sorted, err)
		}
	})
}
