package podunavailablebudget_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	build "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
)

// TestWindows shows which number holds at a time, and when that may change, for a budget of 10 pods of which
// one may be out of service (PUB-140, PUB-141). TestWindowsThatAreWrong shows the bounds,
// TestAWindowHoldsBeforeThePodsAreCountedAgain what who books heeds, TestUsedBy which pods are named, and the
// test of the fields that kubectl has the column.
func TestWindows(t *testing.T) {
	type number struct {
		Desired int32
		Reason  string
		Until   time.Time
	}
	at := func(clock string) time.Time { // 1 January 2026 is a Thursday
		now, err := time.Parse("2006-01-02 15:04", "2026-01-"+clock)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	const (
		night  = `{"schedule":"0 22 * * *","duration":"6h","maxUnavailable":"50%","reason":"nightly"}`
		friday = `{"schedule":"0 0 * * 5","duration":"24h","minAvailable":10,"reason":"freeze"}`
		berlin = `{"schedule":"0 22 * * *","timeZone":"Europe/Berlin","duration":"1h","maxUnavailable":3,"reason":"there"}`
		hourly = `{"schedule":"0 * * * *","duration":"90m","maxUnavailable":2,"reason":"always"}`
	)
	for name, tt := range map[string]struct {
		windows string
		now     time.Time
		want    number
	}{
		"none":                               {`[]`, at("01 12:00"), number{Desired: 9}},
		"before":                             {"[" + night + "]", at("01 21:59"), number{Desired: 9, Until: at("01 22:00")}},
		"as it opens":                        {"[" + night + "]", at("01 22:00"), number{5, "nightly", at("02 04:00")}},
		"past midnight":                      {"[" + night + "]", at("02 03:59"), number{5, "nightly", at("02 04:00")}},
		"as it ends":                         {"[" + night + "]", at("02 04:00"), number{Desired: 9, Until: at("02 22:00")}},
		"of two the one that keeps more":     {"[" + night + "," + friday + "]", at("02 01:00"), number{10, "freeze", at("02 04:00")}},
		"whatever the order":                 {"[" + friday + "," + night + "]", at("02 01:00"), number{10, "freeze", at("02 04:00")}},
		"elsewhere":                          {"[" + berlin + "]", at("01 21:30"), number{7, "there", at("01 22:00")}},
		"it opens again before it ends":      {"[" + hourly + "]", at("01 12:15"), number{8, "always", at("01 12:30")}},
		"and goes on":                        {"[" + hourly + "]", at("01 12:30"), number{8, "always", at("01 13:30")}},
		"what cannot be read counts as none": {"[" + night + `,{"schedule":"often","duration":"1h","maxUnavailable":1}]`, at("01 23:00"), number{Desired: 9}},
		"nor what is no list":                {"{", at("01 23:00"), number{Desired: 9}},
		// This once ended the process, and budgets that are being deleted may be given anything.
		"nor a time zone alone": {`[{"schedule":"TZ=UTC","duration":"1h","maxUnavailable":1}]`, at("01 23:00"), number{Desired: 9}},
		"nor one of cron":       {`[{"schedule":"CRON_TZ=UTC","duration":"1h","maxUnavailable":1}]`, at("01 23:00"), number{Desired: 9}},
	} {
		rules := build.Rules(build.Annotated(pub.BudgetWindows, tt.windows))
		var got number
		var err error
		if got.Desired, got.Reason, got.Until, err = rules.Number(10, tt.now); err != nil {
			t.Fatalf("the number of %s: %v", name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
		plan := podunavailablebudget.Make(podunavailablebudget.Snapshot{Rules: rules, Pods: build.Pods(10), Now: tt.now,
			Workloads: []podunavailablebudget.Workload{workload("a", 10, 10)}})
		used, after := "", time.Duration(0)
		if tt.want.Reason != "" {
			used = "window: " + tt.want.Reason
		}
		if !tt.want.Until.IsZero() {
			after = tt.want.Until.Sub(tt.now)
		}
		s := plan.Status
		if s.DesiredAvailable != tt.want.Desired {
			t.Errorf("%s: pods that must be available: got %d, want %d; %+v, after %v", name, s.DesiredAvailable,
				tt.want.Desired, s, plan.After)
		}
		if s.UsedBy != used {
			t.Errorf("%s: users: got %q, want %q; %+v, after %v", name, s.UsedBy, used, s, plan.After)
		}
		if plan.After != after {
			t.Errorf("%s: time to the next pass: got %v, want %v; %+v, after %v", name, plan.After, after, s,
				plan.After)
		}
	}
}

// TestWindowsThatAreWrong shows what is refused, where, and what is just right; whatever is stored
// nevertheless counts as none (PUB-140 (part)).
func TestWindowsThatAreWrong(t *testing.T) {
	const at = "metadata.annotations[pub.kruise.io/windows]"
	window := func(members string) string {
		return `{"schedule":"0 22 * * 1-5","duration":"1h","maxUnavailable":1` + members + `}`
	}
	many := func(n int) string { return "[" + strings.Repeat(window("")+",", n-1) + window("") + "]" }
	with := func(old, new string) string { return "[" + strings.Replace(window(""), old, new, 1) + "]" }
	for annotation, want := range map[string][]string{
		"": nil, "[]": nil, many(20): nil, many(21): {at}, "{": {at}, "{}": {at}, "[1]": {at}, "[" + window(`,"until":"x"`) + "]": {at},
		with(`"1h"`, `"1m"`): nil, with(`"1h"`, `"168h"`): nil, with(`"1h"`, `"59s"`): {at + "[0].duration"},
		with(`"1h"`, `"168h1s"`): {at + "[0].duration"}, with(`"1h"`, `"long"`): {at},
		with("0 22 * * 1-5", "often"): {at + "[0].schedule"}, with("0 22 * * 1-5", "0 0 22 * * 1"): {at + "[0].schedule"},
		with("0 22 * * 1-5", "@every 1h"): {at + "[0].schedule"}, with("0 22 * * 1-5", "TZ=UTC 0 22 * * *"): {at + "[0].schedule"},
		"[" + window(`,"timeZone":"Europe/Berlin","reason":"nightly"`) + "]": nil,
		"[" + window(`,"timeZone":"Nowhere"`) + "]":                          {at + "[0].timeZone"},
		"[" + window(`,"timeZone":"Local"`) + "]":                            {at + "[0].timeZone"},
		"[" + window(`,"reason":"`+strings.Repeat("x", 200)+`"`) + "]":       nil,
		"[" + window(`,"reason":"`+strings.Repeat("x", 201)+`"`) + "]":       {at + "[0].reason"},
		"[" + window("") + "," + window(`,"minAvailable":1`) + "]":           {at + "[1].maxUnavailable, minAvailable"},
		with(`,"maxUnavailable":1`, ``):                                      {at + "[0].maxUnavailable, minAvailable"},
		with(`"maxUnavailable":1`, `"maxUnavailable":-1`):                    {at + "[0].maxUnavailable"},
		with(`"maxUnavailable":1`, `"minAvailable":"101%"`):                  {at + "[0].minAvailable"},
		with(`"maxUnavailable":1`, `"minAvailable":"99%"`):                   nil,
		"[" + window("") + "," + window(`,"timeZone":"Nowhere"`) + "]":       {at + "[1].timeZone"},
	} {
		budget := build.Budget(build.Annotated(pub.BudgetWindows, annotation))
		var got []string
		for _, err := range podunavailablebudget.Validate(budget, nil, nil) {
			got = append(got, err.Field)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s\n%.200s", diff, annotation)
		}
		if want != nil && len(podunavailablebudget.Windows(budget)) > 0 {
			t.Errorf("%.200s counts", annotation)
		}
	}
}

// PUB-140 (part): a window that opened, ended or was written since the pods were counted holds nobody back
// less than when they are counted again, since whoever counts may be away. What such a window allows is
// allowed once they are.
func TestAWindowHoldsBeforeThePodsAreCountedAgain(t *testing.T) {
	const night = `[{"schedule":"0 22 * * *","duration":"6h","maxUnavailable":5,"reason":"nightly"}]`
	const friday = `[{"schedule":"0 0 * * *","duration":"24h","minAvailable":"100%","reason":"freeze"}]`
	for name, tt := range map[string]struct {
		annotation    string
		total, counts int32 // as counted before
		now           time.Time
		want          bool
	}{
		"a strict one opened":              {friday, 10, 8, build.Now, false},
		"a generous one ended":             {night, 10, 5, build.Now, false},
		"it is open still":                 {night, 10, 5, build.Now.Add(11 * time.Hour), true},
		"a generous one was removed":       {"", 10, 5, build.Now, false},
		"a generous one opened":            {night, 10, 10, build.Now.Add(11 * time.Hour), false},
		"nothing need stay, whatever else": {friday, 0, 0, build.Now, true},
	} {
		rules := build.Rules(build.Annotated(pub.BudgetWindows, tt.annotation), build.Counted(tt.total, tt.counts, 9))
		ledger := podunavailablebudget.NewLedger(rules, build.AllGates, tt.now)
		if got := ledger.Book(build.Pod("p"), policyv1beta1.Delete); got.Allowed != tt.want {
			t.Errorf("%s: allowed: got %t, want %t\n%+v", name, got.Allowed, tt.want, got)
		}
	}
}
