package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func number(n int) *intstr.IntOrString { v := intstr.FromInt32(int32(n)); return &v }

func text(s string) *intstr.IntOrString { v := intstr.FromString(s); return &v }

// CS-090: percentages of the partition are rounded up, but leave one pod to move.
func TestPartition(t *testing.T) {
	tests := map[string]struct {
		value    *intstr.IntOrString
		replicas int
		want     int
	}{
		"absent":                                     {nil, 5, 0},
		"an integer as it is":                        {number(3), 5, 3},
		"an integer above the replicas":              {number(9), 5, 5},
		"an integer equal to the replicas":           {number(5), 5, 5},
		"a percentage is rounded up":                 {text("41%"), 5, 3},
		"an exact percentage":                        {text("60%"), 5, 3},
		"a fraction of a percent":                    {text("12.5%"), 8, 1},
		"a fraction of a percent, rounded up":        {text("12.5%"), 9, 2},
		"99% leaves one pod to move":                 {text("99%"), 5, 4},
		"99.9% leaves one pod to move":               {text("99.9%"), 1000, 999},
		"99.99% rounds to all, leaves one":           {text("99.99%"), 1000, 999},
		"100% is all":                                {text("100%"), 5, 5},
		"100.0% is all":                              {text("100.0%"), 5, 5},
		"more than 100% is all":                      {text("150%"), 5, 5},
		"0% is none":                                 {text("0%"), 5, 0},
		"one replica: 0% moves it":                   {text("0%"), 1, 0},
		"one replica: anything above 0% keeps it":    {text("1%"), 1, 1},
		"one replica: 99% keeps it":                  {text("99%"), 1, 1},
		"two replicas: 51% rounds to all, moves one": {text("51%"), 2, 1},
		"no replicas":                                {text("50%"), 0, 0},
		"no replicas, an integer":                    {number(3), 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Partition(tt.value, tt.replicas)
			if err != nil {
				t.Errorf("resolving the partition: %v", err)
			}
			if got != tt.want {
				t.Errorf("partition: got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	tests := map[string]struct {
		spec Spec
		want Limits
	}{
		"CS-091 the surge is rounded up": {
			Spec{Replicas: 5, MaxSurge: text("30%"), MaxUnavailable: number(1)},
			Limits{Replicas: 5, MaxSurge: 2, MaxUnavailable: 1, ScaleMaxUnavailable: Unlimited}},
		"CS-091, CS-092 paused: no surge, so that maxUnavailable is rounded up": {
			Spec{Replicas: 5, MaxSurge: text("30%"), MaxUnavailable: text("30%"), Paused: true},
			Limits{Replicas: 5, MaxUnavailable: 2, ScaleMaxUnavailable: Unlimited}},
		"CS-092 without surge maxUnavailable is rounded up": {
			Spec{Replicas: 5, MaxUnavailable: text("30%")},
			Limits{Replicas: 5, MaxUnavailable: 2, ScaleMaxUnavailable: Unlimited}},
		"CS-092 a surge that resolves to 0 is none": {
			Spec{Replicas: 5, MaxSurge: text("0%"), MaxUnavailable: text("30%")},
			Limits{Replicas: 5, MaxUnavailable: 2, ScaleMaxUnavailable: Unlimited}},
		"CS-092 beside a surge maxUnavailable is rounded down": {
			Spec{Replicas: 5, MaxSurge: number(1), MaxUnavailable: text("30%")},
			Limits{Replicas: 5, MaxSurge: 1, MaxUnavailable: 1, ScaleMaxUnavailable: Unlimited}},
		"CS-092 absent maxUnavailable is 20%": {
			Spec{Replicas: 11}, Limits{Replicas: 11, MaxUnavailable: 3, ScaleMaxUnavailable: Unlimited}},
		"CS-093, CS-340 nothing given, fewer than 5 replicas: rounded up": {
			Spec{Replicas: 4}, Limits{Replicas: 4, MaxUnavailable: 1, ScaleMaxUnavailable: Unlimited}},
		"CS-094 the scale limit is rounded up": {
			Spec{Replicas: 10, MaxUnavailable: number(1), ScaleMaxUnavailable: text("11%")},
			Limits{Replicas: 10, MaxUnavailable: 1, ScaleMaxUnavailable: 2}},
		"CS-094 absent means unlimited": {
			Spec{Replicas: 10, MaxUnavailable: number(1)},
			Limits{Replicas: 10, MaxUnavailable: 1, ScaleMaxUnavailable: Unlimited}},
		"CS-095, CS-346 12.5% works for all four": {
			Spec{Replicas: 16, Partition: text("12.5%"), MaxSurge: text("12.5%"), MaxUnavailable: text("12.5%"),
				ScaleMaxUnavailable: text("12.5%")},
			Limits{Replicas: 16, Partition: 2, MaxSurge: 2, MaxUnavailable: 2, ScaleMaxUnavailable: 2}},
		"CS-095 12.5% of 20, each rounded its own way": {
			Spec{Replicas: 20, Partition: text("12.5%"), MaxSurge: text("12.5%"), MaxUnavailable: text("12.5%"),
				ScaleMaxUnavailable: text("12.5%")},
			Limits{Replicas: 20, Partition: 3, MaxSurge: 3, MaxUnavailable: 2, ScaleMaxUnavailable: 3}},
		"a percentage that binary fractions miss is exact": {
			Spec{Replicas: 100, Partition: text("7%"), MaxSurge: text("29%"), MaxUnavailable: text("57%"),
				ScaleMaxUnavailable: text("14%")},
			Limits{Replicas: 100, Partition: 7, MaxSurge: 29, MaxUnavailable: 57, ScaleMaxUnavailable: 14}},
		"no replicas": {
			Spec{Replicas: 0, MaxSurge: text("50%"), MaxUnavailable: text("50%")},
			Limits{ScaleMaxUnavailable: Unlimited}},
		"a huge percentage limits nothing": {
			Spec{Replicas: 5, MaxUnavailable: text("1e300%")},
			Limits{Replicas: 5, MaxUnavailable: Unlimited, ScaleMaxUnavailable: Unlimited}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Resolve(tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("limits of the rollout (-want +got):\n%s", diff)
			}
		})
	}
}

// CS-096: an unusable value is an error that names the field, never 0.
func TestResolveRefusesUnusableValues(t *testing.T) {
	tests := map[string]struct {
		spec Spec
		want string
	}{
		"partition, a bare number in a string": {Spec{Replicas: 5, Partition: text("5")},
			`partition: "5" is neither an integer nor a percentage`},
		"partition, words": {Spec{Replicas: 5, Partition: text("half")},
			`partition: "half" is neither an integer nor a percentage`},
		"partition, negative":           {Spec{Replicas: 5, Partition: number(-1)}, `partition: -1 is negative`},
		"maxSurge, negative percentage": {Spec{Replicas: 5, MaxSurge: text("-20%")}, `maxSurge: "-20%" is negative`},
		"maxSurge, no digits": {Spec{Replicas: 5, MaxSurge: text("%")},
			`maxSurge: "%" is neither an integer nor a percentage`},
		"maxUnavailable, not a number": {Spec{Replicas: 5, MaxUnavailable: text("NaN%")},
			`maxUnavailable: "NaN%" is neither an integer nor a percentage`},
		"maxUnavailable, infinite": {Spec{Replicas: 5, MaxUnavailable: text("Inf%")},
			`maxUnavailable: "Inf%" is neither an integer nor a percentage`},
		"maxUnavailable, empty": {Spec{Replicas: 5, MaxUnavailable: text("")},
			`maxUnavailable: "" is neither an integer nor a percentage`},
		"scale limit, negative": {Spec{Replicas: 5, ScaleMaxUnavailable: number(-3)},
			`scaleStrategy.maxUnavailable: -3 is negative`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Resolve(tt.spec)
			if err == nil {
				t.Fatal("an unusable value is accepted")
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("words of the error (-want +got):\n%s", diff)
			}
		})
	}
}

// CS-095 (part): a percentage that gives a whole number of pods gives exactly this number, whether it is
// rounded up or down: errors of floating point do not show.
func TestAPercentageOfAWholeNumberOfPods(t *testing.T) {
	for _, tt := range []struct {
		percent     string
		total, want int
	}{{"16.1%", 1000, 161}, {"32.3%", 1000, 323}, {"64.1%", 1000, 641}, {"64.4%", 250, 161}} {
		for _, up := range []bool{true, false} {
			got, err := Scaled(intstr.FromString(tt.percent), tt.total, up)
			if err != nil {
				t.Errorf("%s of %d, rounded up %t: %v", tt.percent, tt.total, up, err)
			}
			if got != tt.want {
				t.Errorf("%s of %d, rounded up %t: got %d, want %d", tt.percent, tt.total, up, got, tt.want)
			}
		}
	}
}
