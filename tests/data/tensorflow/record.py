"""Records two steps of a small Keras model on TensorFlow by TensorFlow's profiler; the argument is
a folder.
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

model = keras.Sequential(
    [
        keras.Input((16, 16, 3)),
        keras.layers.Conv2D(8, 3, activation="relu", name="conv1"),
        keras.layers.Flatten(),
        keras.layers.Dense(10, name="fc"),
    ]
)
model.compile("sgd", "mse")
inputs, targets = np.random.rand(64, 16, 16, 3), np.random.rand(64, 10)
model.train_on_batch(inputs, targets)
profiler = tf.profiler.experimental
profiler.start(sys.argv[1])
for number in range(2):
    with profiler.Trace("step", step_num=number, _r=1):
        model.train_on_batch(inputs, targets)
profiler.stop()
