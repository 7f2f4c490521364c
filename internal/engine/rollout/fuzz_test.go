package rollout

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/fuzzing"
)

// FuzzOrder: the order of updates is an order of the same pods, whatever priorities and scatter terms say
// and whatever is in labels and deletion costs; it is the same each time, and a pod with more weight is not
// behind one with less.
func FuzzOrder(f *testing.F) {
	f.Add([]byte("some pods with labels, priorities and terms"))
	f.Add([]byte("\x05\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := fuzzing.Choices(data)
		keys, values := []string{"a", "b", "zone"}, []string{"", "x", "pod-1", "pod-007",
			"9999999999999999999999", "*"}
		pods := make([]Candidate, c.Next(12))
		for i := range pods {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i),
				Labels:      map[string]string{},
				Annotations: map[string]string{pub.PodDeletionCost: fuzzing.Pick(&c, "", "5", "-5", "99999999999", "x")}}}
			for range c.Next(3) {
				pod.Labels[fuzzing.Pick(&c, keys...)] = fuzzing.Pick(&c, values...)
			}
			pods[i] = Candidate{Pod: pod, Ready: c.Next(2) == 1}
		}
		weights := &pub.UpdatePriorityStrategy{}
		for range c.Next(3) {
			weights.WeightPriority = append(weights.WeightPriority, pub.UpdatePriorityWeightTerm{
				Weight: fuzzing.Pick[int32](&c, 0, 1, 50, 100, -1), MatchSelector: metav1.LabelSelector{
					MatchLabels: map[string]string{fuzzing.Pick(&c, keys...): fuzzing.Pick(&c, values...)}}})
		}
		orders := &pub.UpdatePriorityStrategy{}
		for range c.Next(3) {
			orders.OrderPriority = append(orders.OrderPriority,
				pub.UpdatePriorityOrderTerm{OrderedKey: fuzzing.Pick(&c, keys...)})
		}
		var terms []pub.UpdateScatterTerm
		for range c.Next(4) {
			terms = append(terms, pub.UpdateScatterTerm{Key: fuzzing.Pick(&c, keys...), Value: fuzzing.Pick(&c,
				values...)})
		}

		weighed := slices.Clone(pods)
		Prioritize(weighed, weights)
		samePods(t, pods, weighed)
		weight := weigh(weights.WeightPriority)
		for i := 1; i < len(weighed); i++ {
			if len(weights.WeightPriority) > 0 && weight(weighed[i-1].Pod) < weight(weighed[i].Pod) {
				t.Errorf("%s is before %s", weighed[i-1].Pod.Name, weighed[i].Pod.Name)
			}
		}
		ordered := slices.Clone(pods)
		Prioritize(ordered, orders)
		samePods(t, pods, ordered)
		scattered := Scatter(pods, pods, terms...)
		samePods(t, pods, scattered)
		if again := Scatter(pods, pods, terms...); namesOf(again) != namesOf(scattered) {
			t.Errorf("%v: %s, and then %s", terms, namesOf(scattered), namesOf(again))
		}
	})
}

func namesOf(pods []Candidate) string {
	var all []string
	for _, c := range pods {
		all = append(all, c.Pod.Name)
	}
	return strings.Join(all, " ")
}

func samePods(t *testing.T, want, got []Candidate) {
	t.Helper()
	a, b := strings.Fields(namesOf(want)), strings.Fields(namesOf(got))
	slices.Sort(a)
	slices.Sort(b)
	if !slices.Equal(a, b) {
		t.Errorf("the pods %s became %s", namesOf(want), namesOf(got))
	}
}

// FuzzScaled: an amount is not negative and not unlimited by accident, a percentage is rounded to the side
// that was asked for, and a partition is between 0 and the number of replicas.
func FuzzScaled(f *testing.F) {
	for _, text := range []string{"5", "-1", "12.5%", "100%", "1e3%", "0x10%", "NaN%", "Inf%", "-0%", "%",
		"33.333333333333336%", "99999999999999999999%"} {
		f.Add(text, 8)
	}
	f.Fuzz(func(t *testing.T, text string, total int) {
		if total < 0 || total > 1<<31-1 {
			return
		}
		value := intstr.Parse(text)
		up, err := Scaled(value, total, true)
		down, err2 := Scaled(value, total, false)
		if (err == nil) != (err2 == nil) || err == nil && (up < down || down < 0 || value.Type == intstr.String &&
			up-down > 1) {
			t.Errorf("%q of %d is %d or %d, %v, %v", text, total, up, down, err, err2)
		}
		digits := strings.TrimSuffix(text, "%")
		if percent, ok := new(big.Rat).SetString(digits); err == nil && ok && value.Type == intstr.String &&
			!strings.ContainsAny(digits, "/eExXpP_") &&
			len(digits) < 12 && up < Unlimited {
			exact := percent.Mul(percent, big.NewRat(int64(total), 100))
			if low, high := big.NewRat(int64(down), 1), big.NewRat(int64(up), 1); outside(exact, low, high) {
				t.Errorf("%q of %d is %d or %d, exactly %s", text, total, down, up, exact.FloatString(12))
			}
		}
		if partition, err := Partition(&value, total); err == nil && (partition < 0 || partition > total) {
			t.Errorf("partition %q of %d is %d", text, total, partition)
		}
	})
}

// outside reports whether a number is outside of two others by more than what floating point costs.
func outside(exact, low, high *big.Rat) bool {
	slack := big.NewRat(1, 1_000_000)
	return new(big.Rat).Add(exact, slack).Cmp(low) < 0 || new(big.Rat).Sub(exact, slack).Cmp(high) > 0
}
