package inplace

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/cputime"
)

// CS-033 (part): a template of a megabyte is compared quickly by the webhook, also if every container
// changes.
func TestManyChangedContainersAreComparedInLinearTime(t *testing.T) {
	const count = 15000
	template := func(image string) []byte {
		var containers []string
		for i := range count {
			containers = append(containers, fmt.Sprintf(`{"name":"c%d","image":%q}`, i, image))
		}
		return []byte(`{"spec":{"containers":[` + strings.Join(containers, ",") + `]}}`)
	}
	spent := cputime.Start(t)
	change, blockers, err := Compare(template("i:1"), template("i:2"), Options{})
	if err != nil {
		t.Errorf("comparing the templates: %v", err)
	}
	if len(blockers) > 0 {
		t.Errorf("differences that block the change: got %d, want none", len(blockers))
	}
	if n := len(change.Images); n != count {
		t.Errorf("images that change: got %d, want %d", n, count)
	}
	if took := spent(); took > 20*time.Second { // about 0.5 s; 20 s when the time grew with the square
		t.Errorf("comparing %d containers took %s, want 20s at most", count, took)
	}
}
