package workloadspread

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// WS-076 (part), WS-102 (part): whoever reaches the webhook port can send reviews of pods that nobody
// creates: under long names, of ever new versions, or deletions of pods that are not there. The status, in
// which they are booked, stays small enough to be written, so that no pod is refused for its size; when the
// bookings have expired, there are places for real pods again.
func TestForgedPodsDoNotFillTheStatus(t *testing.T) {
	const bookingBatch = 250               // as many as one write takes
	const objectsMayHave = 1 << 20 * 3 / 2 // bytes; what is stored has the keys twice, once for who owns which field
	for name, forge := range map[string]func(*Ledger, int) (Decision, func()){
		"generated names": func(l *Ledger, i int) (Decision, func()) {
			return l.Create(Creation{Key: fmt.Sprintf("5e884898-da28-4715-abcd-%012d", i), Generated: true, Version: VersionIgnored})
		},
		"long names": func(l *Ledger, i int) (Decision, func()) {
			return l.Create(Creation{Key: fmt.Sprintf("%s%d", strings.Repeat("x", 240), i), Version: VersionIgnored})
		},
		"versions": func(l *Ledger, i int) (Decision, func()) {
			return l.Create(Creation{Key: fmt.Sprint(i), Version: fmt.Sprintf("%s%d", strings.Repeat("v", 50), i)})
		},
		"deletions": func(l *Ledger, i int) (Decision, func()) {
			return l.Delete(Deletion{Name: fmt.Sprintf("%s%d", strings.Repeat("x", 240), i), Version: VersionIgnored, Subset: "b"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 30000}, {name: b, maxReplicas: 30000}]}}`)
			reason := ""
			for i := 0; i < 20000; i += bookingBatch {
				l := NewLedger(spread, nil, workloadspreadtest.BookingTime)
				for j := range bookingBatch {
					d, commit := forge(l, i+j)
					if commit(); !d.Booked {
						reason = d.Reason
					}
				}
				if changed := l.Changed(); len(changed) > 0 {
					if spread.Status.VersionedSubsetStatuses == nil {
						spread.Status.VersionedSubsetStatuses = changed
					}
					for version, list := range changed {
						spread.Status.VersionedSubsetStatuses[version] = list
					}
				}
			}
			body, err := json.Marshal(spread.Status)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d KB of status", len(body)>>10)
			keys := 0
			for _, list := range spread.Status.VersionedSubsetStatuses {
				for _, s := range list {
					keys += len(strings.Join(workloadspreadtest.Keys(s.CreatingPods),
						"12345678")) + len(strings.Join(workloadspreadtest.Keys(s.DeletingPods), "12345678"))
				}
			}
			if len(body)+keys > objectsMayHave {
				t.Errorf("the status has %d bytes and keys of %d", len(body), keys)
			}
			if !strings.HasPrefix(reason, "more pods are booked, and not seen yet, than a status can hold") {
				t.Errorf("reason: %s", reason)
			}
			quotas, err := Quotas(spread.Spec.Subsets, 0)
			if err != nil {
				t.Fatal(err)
			}
			later := workloadspreadtest.BookingTime.Add(CreationTimeout + time.Second)
			for version, list := range spread.Status.VersionedSubsetStatuses {
				spread.Status.VersionedSubsetStatuses[version] = Count(quotas, list, version, nil, later).Subsets
				if version != VersionIgnored {
					delete(spread.Status.VersionedSubsetStatuses, version) // WS-155
				}
			}
			if d := Create(spread, nil, Creation{Key: "real", Version: VersionIgnored}, later); d.Subset == nil {
				t.Errorf("subset: got nil, want a value\n%+v", d)
			} else if !d.Booked {
				t.Errorf("booked: got false, want true\n%+v", d)
			}
		})
	}
}
