package ephemeraljob_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
)

// EJ-025: a tenant updates an EphemeralJob with 128 KiB of unknown fields in a container, nested as deep as JSON decoders allow.
// It is compared with what is stored in a time that is about proportional to its size: the API server gives a webhook ten
// seconds, and the manager has the webhooks of all tenants.
func TestDeepContainersAreComparedInTime(t *testing.T) {
	written := func(extra string) []byte {
		return []byte(`{"metadata":{"name":"j"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"ephemeralContainers":[{` + extra +
			`"name":"a","image":"a"}]}}}`)
	}
	const depth = 8000
	deep := &strings.Builder{}
	for n := 0; deep.Len() < 128<<10; n++ {
		fmt.Fprintf(deep, `"x%d":%s1%s,`, n, strings.Repeat(`{"a":`, depth), strings.Repeat("}", depth))
	}
	var documents [2]ephemeraljob.Document
	var jobs [2]*appsv1alpha1.EphemeralJob
	spent := cputime.Start(t)
	for i, text := range [][]byte{written(""), written(deep.String())} {
		jobs[i] = &appsv1alpha1.EphemeralJob{}
		if err := json.Unmarshal(text, &documents[i]); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, jobs[i]); err != nil {
			t.Fatal(err)
		}
	}
	decoded := spent()
	spent = cputime.Start(t)
	ephemeraljob.Default(documents[1], documents[0])
	errs := ephemeraljob.Validate(documents[1], jobs[1], jobs[0])
	if took := spent(); took > 100*decoded {
		t.Errorf("decoding took %s, defaulting and validating (%d errors) %s", decoded, len(errs), took)
	}
}
