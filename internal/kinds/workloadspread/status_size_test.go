package workloadspread

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// WS-076 (part): every booking takes room with its key, which is stored twice, and so does the first one of a
// version with its subsets. What there is room for is booked, to the byte, and no more.
func TestRoomInAStatus(t *testing.T) {
	stamp := metav1.NewTime(workloadspreadtest.BookingTime)
	spread := func(keys map[string]int) *appsv1beta1.WorkloadSpread {
		s := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 5}, {name: b}]}}`)
		list := []appsv1beta1.WorkloadSpreadSubsetStatus{workloadspreadtest.Counted("a", 0, 0, map[string]metav1.Time{}, nil),
			workloadspreadtest.Counted("b", 0, 0, nil, map[string]metav1.Time{})}
		for key, length := range keys {
			name := key + strings.Repeat("x", length-len(key))
			if key[0] == 'c' {
				list[0].CreatingPods[name] = stamp
			} else {
				list[1].DeletingPods[name] = stamp
			}
		}
		s.Status.VersionedSubsetStatuses = map[string][]appsv1beta1.WorkloadSpreadSubsetStatus{"v1": list}
		return s
	}
	const empty = 2 * subsetSize // the list of v1
	for name, tt := range map[string]struct {
		keys         map[string]int
		version, key string
		size         int
		room         bool
	}{
		"a short key":   {nil, "v1", "p", bookingSize + 2, true},
		"a long key":    {nil, "v1", "pppppppppp", bookingSize + 20, true},
		"a new version": {nil, "v2", "p", bookingSize + 2 + 2*subsetSize, true},
		"just room": {map[string]int{"c": (statusMost - empty - bookingSize - (bookingSize + 3)) / 2}, "v1", "p",
			bookingSize + 2, true},
		"beyond it": {map[string]int{"c": (statusMost-empty-bookingSize-(bookingSize+2))/2 + 1}, "v1", "p", bookingSize + 2,
			false},
		"deletions count, too": {map[string]int{"d": (statusMost-empty-bookingSize-(bookingSize+2))/2 + 1}, "v1", "p", bookingSize + 2,
			false},
		"no room for a new list": {map[string]int{"c": (statusMost - empty - bookingSize - (bookingSize + 3)) / 2}, "v2", "p",
			bookingSize + 2 + 2*subsetSize, false},
		"many bookings": {map[string]int{"c": 200_000, "d": 200_000, "c2": 200_000}, "v1", "p", bookingSize + 2, true},
		"and one that is too much": {map[string]int{"c": 200_000, "d": 200_000, "c2": 200_000, "d2": 25_000}, "v1", "p", bookingSize + 2,
			false},
	} {
		l := NewLedger(spread(tt.keys), nil, workloadspreadtest.BookingTime)
		for range 2 { // the second answer is from what it remembers
			size, room := l.takes(tt.version, tt.key)
			if size != tt.size {
				t.Errorf("%s: bytes that it takes: got %d, want %d; %d bytes, room %v, want %d, %v", name, size, tt.size,
					size, room,
					tt.size, tt.room)
			}
			if room != tt.room {
				t.Errorf("%s: room: got %t, want %t; %d bytes, room %v, want %d, %v", name, room, tt.room, size, room, tt.size, tt.room)
			}
		}
	}
}

// WS-150 (part): of bookings that nobody counts for long the oldest are settled, as many as are too many, and
// those that are younger stay.
func TestWhichBookingsAreSettled(t *testing.T) {
	at := func(age time.Duration) metav1.Time { return metav1.NewTime(workloadspreadtest.BookingTime.Add(-age)) }
	bookings := map[string]metav1.Time{"just": at(uncountedAfter), "old": at(uncountedAfter + time.Second), "older": at(time.Hour),
		"oldest": at(2 * time.Hour), "new": at(0)}
	for most, want := range map[int]string{0: "[oldest older old]", 2: "[oldest older old]", 3: "[oldest older]", 4: "[oldest]", 5: "[]"} {
		if got := fmt.Sprint(uncounted(bookings, nil, most, workloadspreadtest.BookingTime)); got != want {
			t.Errorf("beyond %d: %s, want %s", most, got, want)
		}
	}
	others := map[string]metav1.Time{"oldest": at(0)}
	if got := fmt.Sprint(uncounted(bookings, others, 3, workloadspreadtest.BookingTime)); got != "[older]" {
		t.Errorf("beyond 3 that go with no others: %s", got)
	}
	for name, tt := range map[string]struct {
		creating, deleting map[string]metav1.Time
		most               int
		want               bool
	}{
		"creations":             {bookings, nil, 4, true},
		"deletions":             {nil, bookings, 4, true},
		"not too many":          {bookings, bookings, 5, false},
		"too many that are new": {map[string]metav1.Time{"a": at(0), "b": at(0)}, map[string]metav1.Time{"c": at(0), "d": at(0)}, 1, false},
	} {
		status := workloadspreadtest.Counted("a", 0, 0, tt.creating, tt.deleting)
		if got := settles(&status, tt.most, workloadspreadtest.BookingTime); got != tt.want {
			t.Errorf("%s: settling changes something: got %t, want %t", name, got, tt.want)
		}
	}
}

// WS-155 (part): a list is over when all of its bookings are old and nothing is left of it, and not as long
// as one is fresh.
func TestWhenAListIsOver(t *testing.T) {
	old, fresh := metav1.NewTime(workloadspreadtest.BookingTime.Add(-time.Hour)), metav1.NewTime(workloadspreadtest.BookingTime)
	type bookings = map[string]metav1.Time
	list := func(replicas int32, creating, deleting bookings,
		more ...appsv1beta1.WorkloadSpreadSubsetStatus) []appsv1beta1.WorkloadSpreadSubsetStatus {
		return append([]appsv1beta1.WorkloadSpreadSubsetStatus{workloadspreadtest.Counted("a", replicas, 0, creating, deleting)}, more...)
	}
	for name, tt := range map[string]struct {
		list []appsv1beta1.WorkloadSpreadSubsetStatus
		want bool
	}{
		"one came and went":      {list(0, bookings{"a": old}, bookings{"a": old}), true},
		"the last one went":      {list(1, nil, bookings{"a": old}), true},
		"one came":               {list(0, bookings{"a": old}, nil), false},
		"it goes just now":       {list(1, nil, bookings{"a": fresh}), false},
		"another comes just now": {list(0, bookings{"a": old, "b": fresh}, bookings{"a": old}), false},
		"nobody came or went":    {list(0, nil, nil, workloadspreadtest.Counted("b", 0, 0, nil, nil)), false},
		"there are pods":         {list(2, nil, bookings{"a": old}), false},
		"one in another subset":  {list(1, nil, bookings{"a": old}, workloadspreadtest.Counted("b", 1, 0, nil, nil)), false},
	} {
		if got := over(tt.list, workloadspreadtest.BookingTime); got != tt.want {
			t.Errorf("%s: the version is over: got %t, want %t", name, got, tt.want)
		}
	}
}

// WS-142 (part): a selector of labels and of fields counts like one of either.
func TestASelectorOfLabelsAndFields(t *testing.T) {
	named := func(s *appsv1beta1.WorkloadSpreadSubset) {
		s.RequiredNodeSelector.MatchFields = []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn,
			Values: []string{"n"}}}
	}
	subset := workloadspreadtest.Subset("a", nil, workloadspreadtest.Zone("x"), named)
	for in, want := range map[string]bool{"x": true, "y": false} {
		if got := required(workloadspreadtest.Pod("p"), &subset, workloadspreadtest.Node(in)); got != want {
			t.Errorf("in zone %s: %v", in, got)
		}
	}
}

// WS-172 (part): pods wait in the last subset without end: it is never passed over.
func TestTheLastSubsetIsNotPassedOver(t *testing.T) {
	spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 5}, {name: b}]}}`)
	plan := &Plan{Spread: spread, snapshot: &Snapshot{Spread: spread, Now: workloadspreadtest.BookingTime, Window: time.Minute},
		quotas: []SubsetQuota{{Name: "a", Quota: 5}, {Name: "b", Quota: Unlimited}},
		stuck:  []int{1, 1}, patience: time.Second, tally: newTally(nil, nil, workloadspreadtest.BookingTime)}
	for i, want := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionTrue} {
		subsets := plan.StatusOn(spread).Status.SubsetStatuses
		if c := Schedulable(&subsets[i]); c == nil {
			t.Errorf("condition of the subset: got nil, want a value; subset %d: %+v", i, c)
		} else if c.Status != want {
			t.Errorf("status: got %q, want %q; subset %d: %+v", c.Status, want, i, c)
		}
	}
}
