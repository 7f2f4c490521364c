package restart

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// StartsAgain reports whether kubelet restarts the container after it ended with that exit code. The rules of
// the container take precedence, then its policy, then the policy of the pod.
func StartsAgain(pod *corev1.Pod, container *corev1.Container, code int32) bool {
	for i := range container.RestartPolicyRules {
		if codes := container.RestartPolicyRules[i].ExitCodes; codes != nil &&
			slices.Contains(codes.Values, code) ==
				(codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return true // all existing actions restart it
		}
	}

	policy := corev1.ContainerRestartPolicy(pod.Spec.RestartPolicy)
	if container.RestartPolicy != nil {
		policy = *container.RestartPolicy
	}

	return policy != corev1.ContainerRestartPolicyNever &&
		(policy != corev1.ContainerRestartPolicyOnFailure || code != 0)
}
