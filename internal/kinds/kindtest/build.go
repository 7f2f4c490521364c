// Package kindtest builds what tests of several kinds need.
package kindtest

import "k8s.io/apimachinery/pkg/util/intstr"

// Number is a number where a percentage may stand too.
func Number(n int) *intstr.IntOrString { v := intstr.FromInt32(int32(n)); return &v }

// Text is a percentage, or what a user wrote for one.
func Text(s string) *intstr.IntOrString { v := intstr.FromString(s); return &v }
