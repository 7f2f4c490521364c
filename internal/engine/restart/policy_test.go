package restart

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// CRR-131, JST-024 (part): rules and policies of containers count before the policy of the pod.
func TestRulesOfContainersCountBeforeThePolicyOfThePod(t *testing.T) {
	never, always := corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyAlways
	in := func(values ...int32) []corev1.ContainerRestartRule {
		return []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: values}}}
	}
	notIn := in(42)
	notIn[0].ExitCodes.Operator = corev1.ContainerRestartRuleOnExitCodesOpNotIn
	for name, test := range map[string]struct {
		container corev1.Container
		policy    corev1.RestartPolicy
		code      int32
		want      bool
	}{
		"of the pod":       {policy: corev1.RestartPolicyAlways, want: true},
		"of the container": {container: corev1.Container{RestartPolicy: &never}, policy: corev1.RestartPolicyAlways},
		"init container":   {container: corev1.Container{RestartPolicy: &always}, policy: corev1.RestartPolicyNever, want: true},
		"rule fits": {container: corev1.Container{RestartPolicy: &never, RestartPolicyRules: in(42)}, code: 42,
			want: true},
		"rule does not fit":          {container: corev1.Container{RestartPolicy: &never, RestartPolicyRules: in(42)}, code: 1},
		"rule for all but":           {container: corev1.Container{RestartPolicy: &never, RestartPolicyRules: notIn}, code: 1, want: true},
		"rule for all but, excepted": {container: corev1.Container{RestartPolicy: &never, RestartPolicyRules: notIn}, code: 42},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: test.policy}}
		if got := StartsAgain(pod, &test.container, test.code); got != test.want {
			t.Errorf("%s: the container starts again: got %t, want %t", name, got, test.want)
		}
	}
}
