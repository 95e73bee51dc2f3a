// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"time"

	"github.com/torpor-dev/torpor/internal/decision"
)

// A rotation gives every account a second password, distributes it, and discards the first password when this is
// requested. Every step may be interrupted, and its result is observed in the Secret and in the servers. A rotation
// waits until the cluster is healthy.

// fileDelay is how long the kubelet may take to update the files of a Secret in a Pod.
const fileDelay = 3 * time.Minute

func mayRotate(d *derivedFacts) bool {
	return (d.Rotation.Asked || d.Rotation.DiscardAsked) && d.state == StateHealthy && !d.StopAsked &&
		d.primary.MayActNow && d.primary.IsWritable
}

func needsNextPasswords(d *derivedFacts) bool {
	return mayRotate(d) && d.Rotation.Asked && d.Rotation.ID == ""
}

func isPromoting(d *derivedFacts) bool {
	return mayRotate(d) && d.Rotation.ID != "" && !d.Rotation.IsPromoted
}

func needsSecondPasswords(d *derivedFacts) bool {
	return isPromoting(d) && d.primary.Rotation != d.Rotation.ID
}

func areReplicasBehindRotation(d *derivedFacts) bool {
	return isPromoting(d) && d.any(func(i *instanceFacts) bool { return i.Rotation != d.Rotation.ID })
}

// hasOldChannelPassword reports whether a replica would be unable to reconnect after the old passwords are discarded.
func hasOldChannelPassword(i *instanceFacts) bool {
	return mayRotate(i.cluster) && i.cluster.Rotation.ID != "" && i.MayActNow && i.FollowsPrimary && i.Channel.HasOldPassword
}

func mayPromotePasswords(d *derivedFacts) bool { return isPromoting(d) }

func isDiscarding(d *derivedFacts) bool {
	return mayRotate(d) && d.Rotation.DiscardAsked && d.Rotation.IsPromoted && d.any(func(i *instanceFacts) bool { return i.Rotation != "" })
}

func arePasswordsUnknown(d *derivedFacts) bool {
	return isDiscarding(d) && (d.Rotation.KnownSince.IsZero() || d.Now.Sub(d.Rotation.KnownSince) < fileDelay)
}

func mayDiscardPasswords(d *derivedFacts) bool {
	return isDiscarding(d) && d.primary.Rotation != ""
}

func isRotationDone(d *derivedFacts) bool { return mayRotate(d) && !isDiscarding(d) }

// promotePasswords emits the event of the rotation. endRotation does not emit it again, because it also ends a repeated
// request that changes nothing while the old passwords are still valid.
func promotePasswords(_ *derivedFacts, primary *instanceFacts) Plan {
	return Plan{
		Do: PromotePasswords{}, Why: fmt.Sprintf("instance %d is the primary; its new passwords replace the old ones in the Secret", primary.Index),
		Events: []decision.Event{normalEvent(EventPasswordsRotated,
			"The accounts have new passwords; the old ones stay valid until they are discarded")},
	}
}

func endRotation(d *derivedFacts, _ *instanceFacts) Plan {
	if d.Rotation.DiscardAsked {
		return Plan{
			Do: EndRotation{Discarded: true}, Why: "every account has one password",
			Events: []decision.Event{normalEvent(EventPasswordsDiscarded, "Only the newest passwords of the accounts are valid")},
		}
	}
	return Plan{Do: EndRotation{}, Why: "every account has a new password and an old one, which has to be discarded before the next rotation"}
}
