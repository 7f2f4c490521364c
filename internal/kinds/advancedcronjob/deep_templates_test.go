package advancedcronjob_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/cputime"
	. "github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
)

// ACJ-028, ACJ-024: a tenant updates an AdvancedCronJob with a template of one MiB whose unknown fields are nested as deep as
// JSON decoders allow. It is compared with what is stored in a time that is about proportional to its size: the API server gives
// a webhook ten seconds, and the manager has the webhooks of all tenants.
func TestDeepTemplatesAreComparedInTime(t *testing.T) {
	written := func(extra string) string {
		return `{"schedule":"0 * * * *","template":{"broadcastJobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never",` +
			extra + `"containers":[{"name":"a","image":"a"}]}}}}}}`
	}
	const depth = 8000
	deep := &strings.Builder{}
	for n := 0; deep.Len() < 1<<20; n++ {
		fmt.Fprintf(deep, `"x%d":%s1%s,`, n, strings.Repeat(`{"a":`, depth), strings.Repeat("}", depth))
	}
	stored, updated := &cron{}, &cron{}
	spent := cputime.Start(t)
	for text, into := range map[string]*cron{written(""): stored, written(deep.String()): updated} {
		if err := json.Unmarshal([]byte(text), &into.Spec); err != nil {
			t.Fatal(err)
		}
	}
	decoded := spent()
	spent = cputime.Start(t)
	got := faults(Validate(updated, stored, nil))
	if took := spent(); took > 100*decoded {
		t.Errorf("decoding took %s, and validating (%q) %s", decoded, got, took)
	}
}
