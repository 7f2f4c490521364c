package ephemeraljob_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
)

// EJ-030, EJ-027 (part): a Go client of the reference, whose containers are those of core/v1, pauses a job that was written by hand. It leaves out what is false or
// empty, which says the same as nothing: it changes no container.
func TestAGoClientPausesAJobThatWasWrittenByHand(t *testing.T) {
	for _, written := range []string{
		`[{"name":"a","image":"a","tty":false}]`,
		`[{"name":"a","image":"a","stdin":false,"stdinOnce":false}]`,
		`[{"name":"a","image":"a","env":[{"name":"A","value":""}]}]`,
		`[{"name":"a","image":"a","targetContainerName":""}]`,
		`[{"name":"a","image":"a","volumeMounts":[{"name":"v","mountPath":"/v","readOnly":false}]}]`,
	} {
		var typed []corev1.EphemeralContainer
		if err := json.Unmarshal([]byte(written), &typed); err != nil {
			t.Fatal(err)
		}
		sent, err := json.Marshal(typed)
		if err != nil {
			t.Fatal(err)
		}
		created, job := read(t, `{`+valid+`,"template":{"ephemeralContainers":`+written+`}}`)
		if errs := ephemeraljob.Validate(created, job, nil); len(errs) > 0 {
			t.Fatalf("%s is not admitted: %v", written, errs)
		}
		document, updated := read(t, `{`+valid+`,"paused":true,"template":{"ephemeralContainers":`+string(sent)+`}}`)
		if errs := ephemeraljob.Validate(document, updated, job); len(errs) > 0 {
			t.Errorf("stored %s, sent %s: %v", written, sent, errs)
		}
	}
}
