package workloadspread

import (
	"fmt"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Unlimited is the quota, and the number of missing replicas, of a subset without maxReplicas (WS-150).
const Unlimited = int32(-1)

var percentage = regexp.MustCompile(`^[0-9]+%$`)

// Quota is the most pods of a subset when the workload wants desired pods in all; a percentage is rounded up
// (WS-011, WS-012).
func Quota(most *intstr.IntOrString, desired int32) (int32, error) {
	if most == nil {
		return Unlimited, nil
	}
	if most.Type == intstr.Int {
		if most.IntVal < 0 {
			return 0, fmt.Errorf("%d is negative", most.IntVal)
		}
		return most.IntVal, nil
	}

	percent, err := Percent(most.StrVal)
	if err != nil {
		return 0, err
	}

	return int32((int64(percent)*int64(max(desired, 0)) + 99) / 100), nil
}

// Percent reads an integer percentage of at most 100 (WS-011, WS-037).
func Percent(text string) (int32, error) {
	if !percentage.MatchString(text) {
		return 0, fmt.Errorf("%q is not an integer percentage", text)
	}
	percent, err := strconv.ParseInt(text[:len(text)-1], 10, 32)
	if err != nil || percent > 100 {
		return 0, fmt.Errorf("%q is more than 100 %%", text)
	}
	return int32(percent), nil
}
