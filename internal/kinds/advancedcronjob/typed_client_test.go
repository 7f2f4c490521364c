package advancedcronjob_test

import (
	"encoding/json"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	. "github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
)

// typedSpec is the spec of an AdvancedCronJob as a Go client of the reference knows it.
type typedSpec struct {
	Schedule string `json:"schedule"`
	Paused   bool   `json:"paused"`
	Template struct {
		JobTemplate          *batchv1.JobTemplateSpec `json:"jobTemplate,omitempty"`
		BroadcastJobTemplate *struct {
			Spec struct {
				Template corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		} `json:"broadcastJobTemplate,omitempty"`
	} `json:"template"`
}

// ACJ-028 (part): a Go client of the reference, whose templates are typed, pauses what was written by hand. It leaves out what is
// false or empty, which changes no template. A change of the template is refused.
func TestAGoClientPausesWhatWasWrittenByHand(t *testing.T) {
	const pod = `{"spec":{"hostNetwork":false,"terminationGracePeriodSeconds":9223372036854775807,"restartPolicy":"Never",` +
		`"containers":[{"name":"a","image":"a","tty":false,"env":[{"name":"A","value":""}]}]}}`
	for name, template := range map[string]string{
		"Job":          `{"jobTemplate":{"spec":{"template":` + pod + `}}}`,
		"BroadcastJob": `{"broadcastJobTemplate":{"spec":{"template":` + pod + `}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			written := `{"schedule":"0 * * * *","template":` + template + `}`
			stored, updated := &cron{}, &cron{}
			client := &typedSpec{}
			for _, into := range []any{&stored.Spec, client} {
				if err := json.Unmarshal([]byte(written), into); err != nil {
					t.Fatal(err)
				}
			}
			client.Paused = true
			sent, err := json.Marshal(client)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(sent), "tty") {
				t.Fatalf("it leaves out nothing: %s", sent)
			}
			if err := json.Unmarshal(sent, &updated.Spec); err != nil {
				t.Fatal(err)
			}
			if got, want := faults(Validate(updated, stored, nil)), ""; got != want {
				t.Errorf("pausing: got %q, want %q", got, want)
			}
			changed := strings.Replace(string(sent), `"image":"a"`, `"image":"b"`, 1)
			if err := json.Unmarshal([]byte(changed), &updated.Spec); err != nil {
				t.Fatal(err)
			}
			if got, want := faults(Validate(updated, stored, nil)), "Forbidden spec"; got != want {
				t.Errorf("another image: got %q, want %q", got, want)
			}
		})
	}
}
