package sidecarset_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// Entries of others stay, what nobody can read is replaced, times move with the status only (SS-260, SS-261,
// SS-D15).
func TestTheConditionKeepsEntriesOfOthers(t *testing.T) {
	former := metav1.NewTime(sidecarsettest.Now.Add(-time.Hour))
	with := func(status corev1.ConditionStatus, message string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: pub.SidecarSetUpgradable, Status: status,
			Reason: "r", Message: message, LastTransitionTime: former}}}}
	}
	tests := map[string]struct {
		pod        *corev1.Pod
		upgradable *bool
		want       string
	}{
		"the first, true":  {&corev1.Pod{}, new(true), `True AllSidecarsetUpgradable {"mesh":true} now`},
		"the first, false": {&corev1.Pod{}, new(false), `False UpdateImmutableField {"mesh":false} now`},
		"beside another": {with("True", `{"other":true}`), new(false),
			`False UpdateImmutableField {"mesh":false,"other":true} now`},
		"another keeps it false": {with("False", `{"mesh":false,"other":false}`), new(true),
			`False UpdateImmutableField {"mesh":true,"other":false} before`},
		"unreadable": {with("False", `{`), new(true), `True AllSidecarsetUpgradable {"mesh":true} now`},
		"taken out": {with("False", `{"mesh":false,"other":true}`), nil,
			`True AllSidecarsetUpgradable {"other":true} now`},
		"taken out where it is not":       {with("False", `{"other":false}`), nil, ""},
		"taken out where is no condition": {&corev1.Pod{}, nil, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			patch := sidecarset.UpgradablePatch(tt.pod, "mesh", tt.upgradable, sidecarsettest.Now)
			got := ""
			if !patch.Empty() {
				after := tt.pod.DeepCopy()
				cluster := simulation.New(1)
				cluster.Store(simulation.Key{Kind: "Pod", Name: "p"}, after)
				body, err := patch.JSON(after)
				if err != nil {
					t.Fatal(err)
				}
				object, err := cluster.Patch(simulation.Key{Kind: "Pod", Name: "p"}, body, patch.Subresource())
				if err != nil {
					t.Fatal(err)
				}
				c := object.(*corev1.Pod).Status.Conditions[0]
				when := map[bool]string{true: "now", false: "before"}[c.LastTransitionTime.Time.Equal(sidecarsettest.Now)]
				got = strings.Join([]string{string(c.Status), c.Reason, c.Message, when}, " ")
				if again := sidecarset.UpgradablePatch(object.(*corev1.Pod), "mesh", tt.upgradable, sidecarsettest.Now); !again.Empty() {
					t.Errorf("written again: %s", again)
				}
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
