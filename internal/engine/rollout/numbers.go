package rollout

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Unlimited is a number of pods that sets no limit.
const Unlimited = math.MaxInt32

// Limits are the numbers in the spec, resolved to whole pods.
type Limits struct {
	// Replicas is the wanted number of pods (R).
	Replicas int
	// Partition is the number of pods that stay at the old revision (P).
	Partition int
	// MaxSurge is how many pods there may be above Replicas (S).
	MaxSurge int
	// MaxUnavailable is how many pods may be unavailable (U).
	MaxUnavailable int
	// ScaleMaxUnavailable limits creation by the number of unavailable pods (SU).
	ScaleMaxUnavailable int
}

// Percentage parses a value such as "12.5%"; ok is false for any other value (CS-025, CS-095).
func Percentage(text string) (percent float64, ok bool) {
	digits, found := strings.CutSuffix(text, "%")
	if !found {
		return 0, false
	}
	percent, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsNaN(percent) || math.IsInf(percent, 0) {
		return 0, false
	}
	return percent, true
}

// Scaled resolves an integer or a percentage of total. It returns an error for anything else and for negative
// values.
func Scaled(value intstr.IntOrString, total int, roundUp bool) (int, error) {
	if value.Type == intstr.Int {
		if value.IntVal < 0 {
			return 0, fmt.Errorf("%d is negative", value.IntVal)
		}
		return int(value.IntVal), nil
	}

	percent, ok := Percentage(value.StrVal)
	if !ok {
		return 0, fmt.Errorf("%q is neither an integer nor a percentage", value.StrVal)
	}
	if percent < 0 {
		return 0, fmt.Errorf("%q is negative", value.StrVal)
	}

	scaled := percent * float64(total) / 100

	rounded := math.Round(scaled)
	switch {
	case math.Abs(scaled-rounded) < 1e-9: // 12.5 % of 8 is 1, despite rounding errors of floats
	case roundUp:
		rounded = math.Ceil(scaled)
	default:
		rounded = math.Floor(scaled)
	}

	return int(min(rounded, Unlimited)), nil
}

// Partition resolves the number of pods that stay at the old revision. Percentages are rounded up, but leave
// at least one pod to move unless the value is 100%. The result is between 0 and replicas (CS-090).
func Partition(value *intstr.IntOrString, replicas int) (int, error) {
	if value == nil {
		return 0, nil
	}

	resolved, err := Scaled(*value, replicas, true)
	if err != nil {
		return 0, fmt.Errorf("partition: %w", err)
	}
	if value.Type == intstr.String && resolved == replicas && replicas > 1 {
		if percent, _ := Percentage(value.StrVal); percent != 100 {
			resolved = replicas - 1
		}
	}

	return min(resolved, replicas), nil
}

// DefaultMaxUnavailable applies if no value is set (CS-011, CS-092).
var DefaultMaxUnavailable = intstr.FromString("20%")

// Spec contains the values in the spec; nil means absent.
type Spec struct {
	Replicas            int
	Partition           *intstr.IntOrString
	MaxSurge            *intstr.IntOrString
	MaxUnavailable      *intstr.IntOrString
	ScaleMaxUnavailable *intstr.IntOrString
	// Paused sets the surge to 0 (CS-091).
	Paused bool
}

// Resolve computes the limits. It returns an error that names the field if a value is unusable (CS-096).
func Resolve(spec Spec) (Limits, error) {
	limits := Limits{Replicas: spec.Replicas, ScaleMaxUnavailable: Unlimited}
	var err error
	if limits.Partition, err = Partition(spec.Partition, spec.Replicas); err != nil {
		return limits, err
	}
	if spec.MaxSurge != nil {
		if limits.MaxSurge, err = Scaled(*spec.MaxSurge, spec.Replicas, true); err != nil {
			return limits, fmt.Errorf("maxSurge: %w", err)
		}
	}
	if spec.Paused {
		limits.MaxSurge = 0
	}

	unavailable := DefaultMaxUnavailable
	if spec.MaxUnavailable != nil {
		unavailable = *spec.MaxUnavailable
	}
	// Round down if there is a surge, or both together could go beyond what the user specified.
	if limits.MaxUnavailable, err = Scaled(unavailable, spec.Replicas, limits.MaxSurge == 0); err != nil {
		return limits, fmt.Errorf("maxUnavailable: %w", err)
	}

	if spec.ScaleMaxUnavailable != nil {
		if limits.ScaleMaxUnavailable, err = Scaled(*spec.ScaleMaxUnavailable,
			spec.Replicas, true); err != nil {
			return limits, fmt.Errorf("scaleStrategy.maxUnavailable: %w", err)
		}
	}

	return limits, nil
}
