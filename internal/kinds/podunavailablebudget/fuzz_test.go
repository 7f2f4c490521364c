package podunavailablebudget

import (
	"strings"
	"testing"
	"time"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/fuzzing"
)

// FuzzWindows: windows are few or all are refused, every error names the annotation, and a window that is
// open closes within its duration, while one that is not opens later.
func FuzzWindows(f *testing.F) {
	for _, text := range []string{`[{"schedule":"0 8 * * 1-5","timeZone":"Europe/Berlin","duration":"10h","maxUnavailable":"10%","reason":"busy"}]`,
		`[{"schedule":"TZ=","duration":"1h"}]`, `[{"schedule":"@every 1ns","duration":"1ns"}]`, `[{"schedule":"0 0 30 2 *","duration":"168h","minAvailable":1}]`, `null`, `{}`, ``} {
		f.Add(text, int64(1_760_000_000))
	}
	f.Fuzz(func(t *testing.T, text string, seconds int64) {
		budget := &policyv1beta1.PodUnavailableBudget{}
		budget.Annotations = map[string]string{pub.BudgetWindows: text}
		windows, errs := parseWindows(budget)
		for _, err := range errs {
			if !strings.HasPrefix(err.Field, "metadata.annotations["+pub.BudgetWindows+"]") {
				t.Errorf("%q has an error of field %q", text, err.Field)
			}
		}
		if usable := Windows(budget); len(usable) > mostWindows || len(errs) > 0 && usable != nil {
			t.Errorf("%q has %d windows, and the errors %v", text, len(usable), errs)
		}
		if len(errs) > 0 || seconds < 0 || seconds > 1<<33 {
			return
		}
		now := time.Unix(seconds, 0)
		for i := range windows {
			open, change := windows[i].Open(now)
			switch {
			case change.IsZero() && !open:
			case !change.After(now), open && change.Sub(now) > windows[i].Duration.Duration:
				t.Errorf("%q at %s: open %t, until %s", text, now.UTC(), open, change.UTC())
			}
		}
	})
}

// FuzzChanged: a pod is no change of itself, and what a change amounts to is one of the operations.
func FuzzChanged(f *testing.F) {
	const pod = `{"metadata":{"name":"web","labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"i","resources":{"limits":{"cpu":"1"}},"future":1}],"initContainers":[{"name":"s","restartPolicy":"Always","resources":{"requests":{"memory":"1Gi"}}}]}}`
	f.Add(pod, []byte{})
	f.Add(pod, []byte("\x01\x00\x02\x01\x03\x00\x01"))
	f.Add(pod, []byte("other resources of a container"))
	f.Fuzz(func(t *testing.T, before string, changes []byte) {
		after := fuzzing.Edit(before, changes, "resources", "containers", "initContainers", "restartPolicy",
			"limits", "claims", "resizePolicy", "labels")
		if by, err := Changed([]byte(before), []byte(before)); err == nil && by != "" {
			t.Errorf("%s is changed by itself: %s", before, by)
		}
		by, err := Changed([]byte(before), []byte(after))
		if err == nil && by != "" && by != policyv1beta1.Update && by != policyv1beta1.Resize {
			t.Errorf("from %s to %s is %q", before, after, by)
		}
	})
}
